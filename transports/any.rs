//! Any transport. An engine holds several, and calls them without a virtual call on the message path.

mod calls;
mod facets;
mod outside;
mod path;
mod variants;

pub use outside::Outside;
pub use variants::AnyTransport;
