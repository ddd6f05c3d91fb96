//! What tasks mean to each other: dependencies, unique keys, transactions, children, dead letters.

pub mod children;
pub mod dependencies;
pub mod judge;
pub mod redrive;
pub mod transactions;
pub mod uniques;
