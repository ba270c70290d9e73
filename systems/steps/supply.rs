//! The memory that bytes go through: deciding who supplies it, the pool of temporaries, and handing memory out.

pub mod decide;
pub mod hand_out;
pub mod pool;
