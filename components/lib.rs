//! The data of tickwire: tables, columns, handles, wire headers, limits and errors. No transforms.
//!
//! Two kinds of tables exist. *Long-lived entities* ([`Vc`] on every contacted proc, [`Communicator`], the
//! engine's own [`Progress`]) are spawned at set-up or at first contact. *Rows* ([`Car`], [`Request`], [`Arrival`],
//! [`Buffer`]) are entities spawned in blocks ahead of use; their row number is their handle, they are recycled
//! through free lists, and they are never despawned nor given or stripped of a component: state is a value in a
//! column. A link between rows is a [`Row`] number, [`NIL`] where there is none. Systems of an application read them, and
//! only the engine writes them.

mod arrival;
mod blocks;
mod buffer;
mod callbacks;
mod car;
mod cells;
mod clock;
mod collective;
mod communicator;
mod control;
pub mod credit;
mod datatype;
mod errors;
mod exact;
mod exclusive;
mod file_size;
mod graph;
mod group;
mod handles;
pub mod index;
mod lease;
mod lent;
pub mod limits;
mod one_sided;
pub mod op;
mod operation;
mod own;
mod packed;
mod pieces;
mod proc;
mod progress;
mod provider_matching;
mod queue;
mod receipt;
mod reduction;
mod registration;
mod request;
mod route;
mod sequence;
mod side;
pub mod signatures;
pub mod slots;
mod span;
mod stamp;
mod stream;
pub mod submission;
mod supply;
mod topology;
mod truth;
mod unexpected;
mod update;
mod window;
pub mod wire;
mod work;

pub use arrival::{Arrival, ArrivalState, Destination, PartPlace};
pub use blocks::{Blocks, IncomingPassage, Inlet, InletMemory, Operand, OutgoingPassage, Part, PartKind, Passage};
pub use buffer::{Buffer, ForwardBytes, ReservedBuffers};
pub use bytemuck;
pub use callbacks::{Callbacks, Notice, Outcome, Panic};
pub use car::{Body, Car, CarKind, CarState, Large, Way, car_flags, refuse_removal};
pub use cells::Cells;
pub use clock::{Clock, now_ns};
pub use collective::{Collective, CollectiveKind};
pub use communicator::{CommState, Communicator, ErrorHandler, Members, context};
pub use control::{Control, ControlFrame, ControlFrames, Inquiry};
pub use datatype::{
    Basic, Datatype, DatatypeError, Described, Elements, ElementsMut, Order, Runs, Segment, Stretch, Typed, TypedPair,
    Unfit, layout_of,
};
pub use errors::*;
pub use exact::{ExactFloat, ExactSum};
pub use exclusive::Exclusive;
pub use file_size::{FileTooLong, check_file_bytes, file_bytes_max};
pub use graph::{Asking, Computation, Graph, GraphKey, Graphs, LeftReceive, Node, NodeWork, Temporary};
pub use group::{Comparison, Group, GroupError};
pub use handles::*;
pub use lease::Lease;
pub use lent::{Lent, NoBytes, Payload};
pub use one_sided::{
    AtomicsDomain, LockKind, RegionAccess, RegionKey, RemoteKind, RemoteOutcome, Window, WindowError, epoch,
};
pub use operation::{Element, Indexed, Operands, Operation};
pub use own::Own;
pub use packed::{OnPacked, OnStructs, Packed, PackedByte};
pub use pieces::{IntoBuffer, LeasedBytes, List, OneRun, Ownership, Pieces};
pub use proc::{KnownProc, ProcTable, Vc, VcState};
pub use progress::{Ended, Moved, Pending, Progress, Refusal, posting};
pub use provider_matching::{DeferredMessage, MatchedPeer, ProviderMatching, Pull};
pub use queue::{FreeList, Link, Queue};
pub use receipt::{Protocol, Receipt, Receipts, RowReceipt, SentReceipt};
pub use reduction::{Reducer, Reduction, combine, reduce};
pub use registration::{Access, Registration, RegistrationCounts, RegistrationUse, Registrations};
pub use request::{Held, Request, RequestState};
pub use route::{Attempt, CallStage, CallWord, Routes, SideLink, TrafficClass};
pub use sequence::{InPlace, NoLayout, Sequence, in_place};
pub use side::Side;
pub use signatures::Signatures;
pub use span::{Span, Spans};
pub use stamp::{Stamp, Stamps};
pub use stream::Stream;
pub use supply::{Abilities, Combine, Decision, Granted, Means, Need, Question, Supplier, Supply, SupplyState, Target};
pub use topology::{Cartesian, Neighbor, Neighbors, Topology, TopologyError};
pub use truth::Bool;
pub use unexpected::{Kept, Unexpected, UnexpectedQueue};
pub use update::{Bits, Integer, Number, NumberType, Update, UpdateCode, UpdateOperation};
pub use work::{Count, Tally, Work};
