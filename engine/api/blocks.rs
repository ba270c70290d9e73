//! Blocks (reference: communication agent notes, "collective case"). A scatter block deals out one message, and a gather block puts one
//! together from several. Bytes that are only forwarded go on as they arrive.

pub(crate) mod build;
pub(crate) mod builder;
pub(crate) mod handles;
mod plan;

use crate::api::persistent::Persistent;
use crate::api::request::{Posted, Rejected};
use crate::api::scope::Scope;
use crate::run::engine::Engine;
use builder::GraphBuilder;
use handles::{Elements, Incoming, Outgoing, Outgoings, Place, Ranks};
use tickwire_components::{Comm, LeasedBytes, NoLayout, Operation, Rank, Sequence, Tag};

impl Engine {
    /// A scatter block receives one message from a rank, and sends messages to any number of ranks. Its methods name the parts of the
    /// incoming message, in order, and say what becomes of each. An outgoing message is the concatenation of the parts that go to its rank,
    /// in the order in which they were added. A part may go to several ranks: `[Rank(2), Rank(5)]`.
    ///
    /// All messages of a block have its tag. They match only messages of blocks and [graphs](Engine::graph).
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, Tag, op};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// # let (me, world) = (engine.rank(), engine.comm_world());
    /// let source = engine.gather_block(me, Tag(1), world).send(vec![1.0f64; 4]).send(vec![7u8; 3]).start()?;
    /// let block = engine.scatter_block(me, Tag(1), world).recv_op(vec![2.0f64; 4], op::Sum).recv(vec![0u8; 3]).start()?;
    /// let (((_, sums), bytes), _) = engine.wait_take(block)?;
    /// assert_eq!((sums, bytes), (vec![3.0; 4], vec![7; 3]));
    /// # engine.wait(&source)?;
    /// # Ok::<(), tickwire::Error>(())
    /// ```
    pub fn scatter_block(&mut self, from: Rank, tag: Tag, comm: Comm) -> ScatterBlock<'_, 'static, ()> {
        ScatterBlock::new(GraphBuilder::new(self, "scatter block", comm, false), from, tag)
    }

    /// A gather block receives messages from any number of ranks, and sends one message to a rank. See [`Engine::scatter_block`].
    pub fn gather_block(&mut self, to: Rank, tag: Tag, comm: Comm) -> GatherBlock<'_, 'static, ()> {
        GatherBlock::new(GraphBuilder::new(self, "gather block", comm, false), to, tag)
    }
}

impl<'env, L> Scope<'_, 'env, L> {
    /// As [`Engine::scatter_block`], with borrowed buffers.
    pub fn scatter_block(&mut self, from: Rank, tag: Tag, comm: Comm) -> ScatterBlock<'_, 'env, ()> {
        ScatterBlock::new(GraphBuilder::new(self.engine, "scatter block", comm, self.lends), from, tag)
    }

    /// As [`Engine::gather_block`], with borrowed buffers.
    pub fn gather_block(&mut self, to: Rank, tag: Tag, comm: Comm) -> GatherBlock<'_, 'env, ()> {
        GatherBlock::new(GraphBuilder::new(self.engine, "gather block", comm, self.lends), to, tag)
    }
}

/// One message in, many out. See [`Engine::scatter_block`].
#[must_use = "a block does nothing before it is started"]
pub struct ScatterBlock<'e, 'b, B> {
    graph: GraphBuilder<'e, 'b, B>,
    from: Incoming,
    to: Vec<(Rank, Outgoing)>,
    tag: Tag,
}

/// Many messages in, one out. See [`Engine::gather_block`].
#[must_use = "a block does nothing before it is started"]
pub struct GatherBlock<'e, 'b, B> {
    graph: GraphBuilder<'e, 'b, B>,
    from: Vec<(Rank, Incoming)>,
    to: Outgoing,
    tag: Tag,
}

impl<'e, 'b> ScatterBlock<'e, 'b, ()> {
    fn new(mut graph: GraphBuilder<'e, 'b, ()>, from: Rank, tag: Tag) -> Self {
        let from = graph.receive(from, tag);
        ScatterBlock { graph, from, to: Vec::new(), tag }
    }
}

impl<'e, 'b> GatherBlock<'e, 'b, ()> {
    fn new(mut graph: GraphBuilder<'e, 'b, ()>, to: Rank, tag: Tag) -> Self {
        let to = graph.send(to, tag);
        GatherBlock { graph, from: Vec::new(), to, tag }
    }
}

/// The methods that both blocks have. `$rank` is what names the other side of a part that is received (a gather block) or passed on (a
/// scatter block).
macro_rules! parts {
    ($block:ident, $incoming:ident, $outgoing:ident, $passing:ident, $from:ident: [$($source:ident)?], $to:ident: [$($target:ident)?]) => {
        impl<'e, 'b, B: NoLayout> $block<'e, 'b, B> {
            /// Receives elements into a buffer.
            pub fn recv<P: LeasedBytes + Sequence + Send + 'b>(self, buffer: P $(, $source: Rank)?) -> $block<'e, 'b, (B, P)> {
                self.with_place(buffer, |block, place| {
                    let from = block.$incoming($($source)?);
                    block.graph.take(from, place);
                })
            }

            /// Combines received elements with those of a buffer, into the buffer. The left operand is that of the lower rank.
            pub fn recv_op<P: LeasedBytes + Sequence + Send + 'b>(
                self,
                buffer: P,
                operation: impl Operation<P::Item>
                $(, $source: Rank)?
            ) -> $block<'e, 'b, (B, P)> {
                self.with_place(buffer, |block, place| {
                    let from = block.$incoming($($source)?);
                    block.graph.take_op(from, place, operation);
                })
            }

            /// Receives elements into a buffer, and forwards them as they arrive.
            pub fn recv_forward<P: LeasedBytes + Sequence + Send + 'b>(
                self,
                buffer: P
                $(, $source: Rank)?
                $(, $target: impl Into<Ranks>)?
            ) -> $block<'e, 'b, (B, P)> {
                self.with_place(buffer, |block, place| {
                    let (from, to) = (block.$incoming($($source)?), block.$passing($($target)?));
                    block.graph.take_pass(from, place, to);
                })
            }

            /// Combines received elements with those of a buffer, into the buffer, and forwards the result as it comes.
            pub fn recv_op_forward<P: LeasedBytes + Sequence + Send + 'b>(
                self,
                buffer: P,
                operation: impl Operation<P::Item>
                $(, $source: Rank)?
                $(, $target: impl Into<Ranks>)?
            ) -> $block<'e, 'b, (B, P)> {
                self.with_place(buffer, |block, place| {
                    let (from, to) = (block.$incoming($($source)?), block.$passing($($target)?));
                    block.graph.take_op_pass(from, place, operation, to);
                })
            }

            /// Combines received elements with those of a buffer, and forwards the result as it comes. The buffer itself stays as it is:
            /// the operation is applied to what is sent.
            pub fn forward_op<P: Sequence + Send + 'b>(
                self,
                buffer: P,
                operation: impl Operation<P::Item>
                $(, $source: Rank)?
                $(, $target: impl Into<Ranks>)?
            ) -> $block<'e, 'b, (B, P)> {
                self.with(buffer, |block, own| {
                    let (from, to) = (block.$incoming($($source)?), block.$passing($($target)?));
                    block.graph.pass_op(from, own, operation, to);
                })
            }

            /// Forwards this many bytes as they arrive. This rank holds no more than a window of them, unless they go to several ranks.
            pub fn forward(mut self, bytes: usize $(, $source: Rank)? $(, $target: impl Into<Ranks>)?) -> Self {
                let (from, to) = (self.$incoming($($source)?), self.$passing($($target)?));
                self.graph.pass(from, bytes, to);
                self
            }

            /// Sends the elements of a buffer.
            pub fn send<P: Sequence + Send + 'b>(self, buffer: P $(, $target: Rank)?) -> $block<'e, 'b, (B, P)> {
                self.with(buffer, |block, elements| {
                    let to = block.$outgoing($($target)?);
                    block.graph.give(to, elements);
                })
            }

            /// Starts the block. The request is done when all messages of the block are. It holds the buffers in nested pairs: each buffer
            /// stands beside the pair of those before it.
            ///
            /// # Errors
            /// A wrong rank or tag, or no free row. The error gives the buffers back.
            pub fn start(self) -> Posted<B> {
                self.graph.start()
            }

            /// Makes a persistent request of the block. [`Engine::start`] starts it, and allocates nothing.
            ///
            /// # Errors
            /// As [`Self::start`].
            pub fn persistent(self) -> Result<Persistent<B>, Rejected<B>> {
                self.graph.persistent()
            }

            fn with<P: Sequence + Send + 'b>(
                self,
                buffer: P,
                add: impl FnOnce(&mut $block<'e, 'b, (B, P)>, Elements<P::Item>),
            ) -> $block<'e, 'b, (B, P)> {
                let $block { graph, from, to, tag } = self;
                let (graph, elements) = graph.with(buffer);
                let mut block = $block { graph, from, to, tag };
                add(&mut block, elements);
                block
            }

            fn with_place<P: LeasedBytes + Sequence + Send + 'b>(
                self,
                buffer: P,
                add: impl FnOnce(&mut $block<'e, 'b, (B, P)>, Place<P::Item>),
            ) -> $block<'e, 'b, (B, P)> {
                let $block { graph, from, to, tag } = self;
                let (graph, place) = graph.with_place(buffer);
                let mut block = $block { graph, from, to, tag };
                add(&mut block, place);
                block
            }
        }
    };
}

parts!(ScatterBlock, the_incoming, outgoing, outgoings, from: [], to: [to]);
parts!(GatherBlock, incoming, the_outgoing, the_outgoing, from: [from], to: []);

impl<B: NoLayout> ScatterBlock<'_, '_, B> {
    fn the_incoming(&self) -> Incoming {
        self.from
    }

    fn outgoing(&mut self, to: Rank) -> Outgoing {
        if let Some((_, known)) = self.to.iter().find(|(rank, _)| *rank == to) {
            return *known;
        }
        let message = self.graph.send(to, self.tag);
        self.to.push((to, message));
        message
    }

    fn outgoings(&mut self, to: impl Into<Ranks>) -> Outgoings {
        let Ranks(to) = to.into();
        to.into_iter().map(|to| self.outgoing(to)).collect::<Vec<_>>().into()
    }
}

impl<B: NoLayout> GatherBlock<'_, '_, B> {
    fn incoming(&mut self, from: Rank) -> Incoming {
        if let Some((_, known)) = self.from.iter().find(|(rank, _)| *rank == from) {
            return *known;
        }
        let message = self.graph.receive(from, self.tag);
        self.from.push((from, message));
        message
    }

    fn the_outgoing(&self) -> Outgoing {
        self.to
    }
}
