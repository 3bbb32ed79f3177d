//! The clients that wait for the loads of others, so that a load which waits for a connection is served in the turn of any of them.

use std::collections::HashMap;

use super::stored::EntryKey;
use stockade_http::{
    locks::Lock,
    upstream::shares::{Client, Clients, note_client},
};

/// Of the loads in flight of one origin.
#[derive(Debug, Default)]
pub struct WaitingClients(Lock<HashMap<EntryKey, Clients>>);

/// A load in flight, until it is dropped.
pub struct NotedLoad<'a> {
    all: &'a WaitingClients,
    key: &'a EntryKey,
    /// False: another load of the key is noted.
    is_first: bool,
}

impl WaitingClients {
    pub fn begin<'a>(&'a self, key: &'a EntryKey) -> NotedLoad<'a> {
        let mut loads = self.0.lock();
        let is_first = !loads.contains_key(key);
        if is_first {
            loads.insert(key.clone(), Clients::new());
        }
        NotedLoad { all: self, key, is_first }
    }

    /// Notes a client that may have to wait for the load of this key, if there is one.
    pub fn join(&self, key: &EntryKey, client: Client) {
        if let Some(clients) = self.0.lock().get_mut(key) {
            note_client(clients, client);
        }
    }
}

impl NotedLoad<'_> {
    #[must_use]
    pub fn clients(&self) -> Clients {
        self.all.0.lock().get(self.key).filter(|_| self.is_first).cloned().unwrap_or_default()
    }
}

impl Drop for NotedLoad<'_> {
    fn drop(&mut self) {
        if self.is_first {
            let removed = self.all.0.lock().remove_entry(self.key);
            drop(removed);
        }
    }
}
