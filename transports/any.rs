//! Any transport: an engine holds several, and calls them without a virtual call where it is made for each message.

mod calls;
mod facets;
mod outside;
mod path;
mod variants;

pub use outside::Outside;
pub use variants::AnyTransport;
