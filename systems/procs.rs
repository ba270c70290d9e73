//! Procs: their connections, communicators, endpoints, and what is more urgent.

pub mod boards;
pub mod calls;
pub mod cards;
pub mod communicators;
pub mod connections;
pub mod ending;
pub mod endpoint;
mod links;
pub(crate) mod members;
pub mod priorities;
pub mod receipts;
pub mod routes;
pub mod seats;
pub mod windows;
