//! Pages of one user.

use std::collections::BTreeMap;

use stockade_services::StackServer;

use crate::client::{Answer, Clients, User, at_once};

/// Two users with a session each.
pub fn logged_in(clients: &Clients) -> [User; 2] {
    ["ann", "bob"].map(|name| {
        let mut user = User::new(name);
        let log_in = || {
            let request =
                clients.request("POST", "/login").field("Content-Type", "application/x-www-form-urlencoded");
            request.body(format!("user={name}").as_bytes()).send()
        };
        // Sent once more after an error, as a user would do.
        if let Some(answer) = log_in().filter(|answer| answer.status < 500).or_else(log_in) {
            clients.check([302, 303].contains(&answer.status), "302 or 303", &answer);
            user.keep(&answer);
        }
        user
    })
}

pub fn account(clients: &Clients, _: &StackServer) {
    page_of_user(clients, "/account");
}

pub fn expired(clients: &Clients, _: &StackServer) {
    page_of_user(clients, "/account/expired");
}

fn page_of_user(clients: &Clients, target: &str) {
    let [ann, bob] = logged_in(clients);
    let get = |user: &User, other: &User| {
        if let Some(answer) = clients.get(target).of(user).gzip().send() {
            clients.check_owner(user, &[other], &answer);
        }
    };
    for _ in 0..2 {
        get(&ann, &bob);
        get(&bob, &ann);
    }
    for _ in 0..2 {
        let tasks = (0..4).map(|number| {
            let pair = if number % 2 == 0 { (&ann, &bob) } else { (&bob, &ann) };
            let task: Box<dyn FnOnce() + Send + '_> = Box::new(move || get(pair.0, pair.1));
            task
        });
        at_once(tasks.collect());
    }
    // A user without a session.
    let nobody = User::new("nobody");
    if let Some(answer) = clients.get(target).gzip().send() {
        clients.check_owner(&nobody, &[&ann, &bob], &answer);
    }
}

/// The token in a body.
fn token(answer: &Answer) -> Option<String> {
    let text = answer.text();
    let token = text.split("token=").nth(1)?;
    Some(token.chars().take_while(char::is_ascii_alphanumeric).collect())
}

pub fn form(clients: &Clients, _: &StackServer) {
    let mut owners = BTreeMap::new();
    for visitor in 0..6 {
        let Some(answer) = clients.get("/form").gzip().send() else { continue };
        let own = token(&answer);
        clients.check(answer.status == 200 && own.is_some(), "200 with a token", &answer);
        if let Some(owner) = own.and_then(|own| owners.insert(own, visitor)) {
            clients.tally().foreign += 1;
            clients.note(&format!(
                "visitor {visitor} got the token of visitor {owner}\n{}\n{}",
                answer.request, answer.head
            ));
        }
    }
}
