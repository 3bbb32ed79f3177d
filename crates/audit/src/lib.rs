//! Examines an HTTP cache: plays its origin and its users, and says what it does.
//!
//! ```text
//! users --> the cache --> the origin, which runs a script: each question has paths of its own
//!   '------- what both saw --> an answer with a mark, evidence and perhaps a remedy
//! ```

#![allow(missing_docs, reason = "used by this workspace alone; a comment states what a name cannot")]

mod answer;
mod case;
mod compare;
mod control;
mod experiment;
mod fail_on;
mod page;
mod preset;
mod questions;
mod remedy;
pub mod report;
mod server_identity;
mod setup;
mod stamp;
mod template;
mod truth;
mod users;

pub use answer::{Answer, Mark};
pub use compare::{AnswerChange, AuditComparison, ChangeKind, EarlierAudit, NotAnAudit};
pub use control::{Control, PresetServer, Purge, Server, StartedCommand};
pub use experiment::{NoExperiment, experiment};
pub use fail_on::FailingAnswer;
pub use preset::{OwnParts, PRESETS, Preset};
pub use questions::{Question, questions};
pub use server_identity::ServerIdentity;
pub use setup::{AuditError, AuditOrigin, AuditReport, Examination};
pub use stockade_services::ServiceError;
pub use template::{Template, TemplateFault};
pub use truth::{Example, Truth, Violation};
