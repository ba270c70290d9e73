//! Who supplies the memory that bytes go through: the decision, the pool of temporaries, and handing it out.

pub mod decide;
pub mod hand_out;
pub mod pool;
