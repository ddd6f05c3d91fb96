//! The claim service: brokers ask leaders for grants, leaders make them and end them.

pub mod broker;
pub mod calls;
pub mod demand;
pub mod grants;
pub mod heads;
pub mod permits;
pub mod policies;
pub mod quotas;
pub mod seals;
pub mod sessions;
pub mod spent;
