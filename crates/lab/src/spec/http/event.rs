//! `[[event]]`: the events of a run during a load.

use std::time::Duration;

use serde::Deserialize;
use stockade_cache::spec::{
    TomlError,
    value::{DurationValue, TextValue},
};
use stockade_record::record::Role;
use toml::Spanned;

use super::{super::event::within_load, method_and_path};
use crate::http::{EventAction, EventRequest, LoadEvent};

/// Something that happens during the load: one of `purge`, `write`, `exec`, `restart`, `reload`, `kill` and `freeze`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) struct EventTable {
    /// Time since the start of the load.
    at: TextValue<DurationValue>,
    /// Request with which the cache forgets a page, such as "PURGE /page". With `*` at its end, such as "BAN /*": all pages that begin so.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", regex(pattern = "^[A-Z]+ /")))]
    purge: Option<String>,
    /// Request through the cache that changes a page, such as "POST /page".
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", regex(pattern = "^[A-Z]+ /")))]
    write: Option<String>,
    /// Shell command that ends by itself.
    exec: Option<String>,
    /// The server that ends by SIGTERM and starts again.
    restart: Option<PartName>,
    /// The server that reads its configuration again: SIGHUP.
    reload: Option<PartName>,
    /// The server that ends by SIGKILL and starts again, at once or after `for`.
    kill: Option<PartName>,
    /// The server that does not run for the time `for`: SIGSTOP.
    freeze: Option<PartName>,
    /// Its duration, of `freeze` and `kill`.
    #[serde(rename = "for")]
    length: Option<TextValue<DurationValue>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum PartName {
    Cache,
    Origin,
}

/// The processes of a target that events can signal.
#[derive(Clone, Copy)]
pub(super) struct KnownProcesses {
    pub(super) cache: CacheControl,
    pub(super) has_origin: bool,
}

/// The control that a run has over the process of its cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheControl {
    /// It does not know the process.
    Nothing,
    Signal,
    /// It can start it again, too.
    Restart,
}

/// The events of a load of this length, in the order of time.
pub(super) fn read(
    events: &[Spanned<EventTable>],
    known: KnownProcesses,
    ends: Duration,
) -> Result<Vec<LoadEvent>, TomlError> {
    let read = |event: &EventTable| {
        let action = event.action()?;
        known.refuse(&action).map_or(Ok(Some(action)), Err)
    };
    let events = within_load(events, ends, |event| event.at.0.0, read)?;
    Ok(events.into_iter().map(|(at, action)| LoadEvent { at, action }).collect())
}

impl EventTable {
    fn action(&self) -> Result<EventAction, String> {
        let length = self.length.as_ref().map(|length| length.0.0);
        let request = |key: &str, request: &str, example: &str| {
            let (method, path) = method_and_path(request)
                .ok_or_else(|| format!("`{key}` is a method and a path: write \"{example}\""))?;
            Ok::<_, String>(EventRequest { method: method.to_owned(), path: path.to_owned() })
        };
        let mut actions = Vec::new();
        if let Some(purge) = &self.purge {
            actions.push(EventAction::Purge(request("purge", purge, "PURGE /page")?));
        }
        if let Some(write) = &self.write {
            let write = request("write", write, "POST /page")?;
            if matches!(&*write.method, "GET" | "HEAD" | "OPTIONS" | "TRACE") {
                return Err(format!(
                    "{} changes nothing (RFC 9110, 9.2.1): write \"POST {}\"",
                    write.method, write.path
                ));
            }
            actions.push(EventAction::Write(write));
        }
        actions.extend(self.exec.clone().map(EventAction::Exec));
        for (part, action) in [
            (self.restart, EventAction::Restart),
            (self.kill, EventAction::Kill { down_for: length.unwrap_or_default() }),
        ] {
            match part {
                None => {}
                Some(PartName::Cache) => actions.push(action),
                Some(PartName::Origin) => {
                    return Err("an origin keeps its stages: write a stage with `refusing` into its recipe"
                        .to_owned());
                }
            }
        }
        actions.extend(self.reload.map(|part| EventAction::Reload(part.role())));
        let freeze = |part: PartName| {
            let lasts = length
                .filter(|lasts| !lasts.is_zero())
                .ok_or("`freeze` has a duration: write for = \"3s\"")?;
            Ok::<_, String>(EventAction::Freeze { part: part.role(), lasts })
        };
        actions.extend(self.freeze.map(freeze).transpose()?);
        let (Some(action), true) = (actions.pop(), actions.is_empty()) else {
            return Err(
                "an event is one of `purge`, `write`, `exec`, `restart`, `reload`, `kill` and `freeze`"
                    .to_owned(),
            );
        };
        if length.is_some() && !matches!(action, EventAction::Kill { .. } | EventAction::Freeze { .. }) {
            return Err("only `freeze` and `kill` have a duration: leave `for` out".to_owned());
        }
        Ok(action)
    }
}

impl PartName {
    fn role(self) -> Role {
        match self {
            Self::Cache => Role::Proxy,
            Self::Origin => Role::Origin,
        }
    }
}

impl KnownProcesses {
    /// Why the event cannot be done; `None`: it can.
    fn refuse(self, action: &EventAction) -> Option<String> {
        let message = match action.signalled()? {
            Role::Origin if !self.has_origin => {
                "the run starts no origin: write [origin] recipe, or leave the event out"
            }
            Role::Origin => return None,
            _ if action.restarts_cache() && self.cache != CacheControl::Restart => {
                "the run does not start the cache: write the `command` of the server into [target], or use `exec`"
            }
            _ if self.cache == CacheControl::Nothing => {
                "the processes of this target are not known: write its `pid` or its `command` into [target]"
            }
            _ => return None,
        };
        Some(message.to_owned())
    }
}
