//! The systems of a tick, one file each, and Deliver: loops over rows.

pub mod boards;
pub mod complete;
pub mod deliver;
pub mod drain_cq;
pub mod match_cars;
pub mod post;
pub mod supply_buffers;
pub mod transfer;
