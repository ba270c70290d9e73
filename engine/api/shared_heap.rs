//! The shared heap as an engine offers it.

use crate::run::engine::Engine;
use tickwire_components::{BuildError, Element};
use tickwire_transports::heap::{self, HeapReport};
use tickwire_transports::shm::BytesRead;
use tickwire_transports::{AnyTransport, HeapBuffer, HeapError};

/// The variable that switches the shared heap on (1) or off (0) for engines whose builder does not say.
pub const ENV_SHARED_HEAP: &str = "TICKWIRE_SHARED_HEAP";

/// Whether an engine uses the shared heap. Opens the heap if it is asked for. If that fails, [`Engine::alloc`] says why.
pub(crate) fn decide(asked: Option<bool>) -> Result<bool, BuildError> {
    let asked = match (asked, std::env::var(ENV_SHARED_HEAP).as_deref()) {
        (Some(asked), _) => Some(asked),
        (None, Err(_)) => None,
        (None, Ok("1")) => Some(true),
        (None, Ok("0")) => Some(false),
        (None, Ok(other)) => {
            let (value, expected) = (other.to_owned(), "give 1 or 0".to_owned());
            return Err(BuildError::Environment { variable: ENV_SHARED_HEAP, value, expected });
        }
    };
    if asked == Some(true) {
        let _ = heap::open();
    }
    Ok(asked.unwrap_or_else(|| heap::offer().is_some()))
}

impl Engine {
    /// A buffer of `length` zeros in the [shared heap](tickwire_transports::heap). If a message of
    /// [`Limits::mapped_min`](crate::Limits::mapped_min) bytes or more is sent from it to a proc on this host, the receiver copies it
    /// straight out of the buffer, without a system call. The send is done after that copy, and then the buffer may be used again as after
    /// any send. All peers on this host can read the buffer at any time.
    ///
    /// The engine must have been [built](crate::Builder::shared_heap) with the shared heap.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, Tag};
    /// let mut engine = Engine::builder().shared_heap(true).build(Bootstrap::solo())?;
    /// let (me, world) = (engine.rank(), engine.comm_world());
    /// let mut buffer = engine.alloc(100_000)?;
    /// buffer.fill(7);
    /// let request = engine.isend(buffer, me, Tag(1), world)?;
    /// let mut incoming = vec![0; 100_000];
    /// engine.recv(&mut incoming, me, Tag(1), world)?;
    /// engine.wait(&request)?;
    /// let (buffer, _) = engine.take(request)?;
    /// assert!(buffer[..] == incoming[..] && incoming[99_999] == 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The heap is off, full, or not available here. The error says what to do.
    pub fn alloc(&self, length: usize) -> Result<HeapBuffer, HeapError> {
        if self.shared_heap { HeapBuffer::new(length) } else { Err(HeapError::Off) }
    }

    /// As [`Engine::alloc`], but a buffer of `count` elements of plain data, all bytes 0. Meant for collective and persistent operations:
    /// members on this host then read the operands where they are.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, op};
    /// let mut engine = Engine::builder().shared_heap(true).build(Bootstrap::solo())?;
    /// let world = engine.comm_world();
    /// let (send, receive) = (engine.alloc_elements::<f64>(1000)?, engine.alloc_elements(1000)?);
    /// let mut sum = engine.allreduce_init(send, receive, op::Sum, world)?;
    /// engine.buffer(&mut sum)?.0.fill(0.5);
    /// engine.start(&sum)?;
    /// engine.wait(&sum)?;
    /// assert_eq!(engine.buffer(&mut sum)?.1[999], 0.5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Engine::alloc`].
    pub fn alloc_elements<T: Element>(&self, count: usize) -> Result<HeapBuffer<T>, HeapError> {
        if self.shared_heap { HeapBuffer::elements(count) } else { Err(HeapError::Off) }
    }

    /// What the shared heap of this process is used for. `None` if this engine does not use it, or there is none.
    pub fn heap_report(&self) -> Option<HeapReport> {
        heap::report().filter(|_| self.shared_heap)
    }

    /// How many bytes this engine has read out of the memory of other processes, instead of having them sent in pieces.
    pub fn bytes_read(&mut self) -> BytesRead {
        let mut sum = BytesRead::default();
        for endpoint in self.store.all().endpoints.iter_mut() {
            if let AnyTransport::Shm(shm) = endpoint.transport.get() {
                let read = shm.bytes_read();
                sum.heap += read.heap;
                sum.attach += read.attach;
                sum.staged += read.staged;
            }
        }
        sum
    }

    /// How many calls of the kernel this engine has made to read or write the memory of other processes. One call moves up to 1024 runs.
    pub fn kernel_calls(&mut self) -> u64 {
        let endpoints = self.store.all().endpoints.iter_mut();
        let calls = endpoints.map(|endpoint| match endpoint.transport.get() {
            AnyTransport::Shm(shm) => shm.kernel_calls(),
            _ => 0,
        });
        calls.sum()
    }
}
