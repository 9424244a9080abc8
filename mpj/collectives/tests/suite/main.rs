//! Tests of the rules, and simulations of every algorithm.

mod algorithms;
mod inter;
mod invalid_schedules;
mod rules;
mod simulator;
