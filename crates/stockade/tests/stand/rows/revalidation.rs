//! Pages with a lifetime of a second.

use std::time::Duration;

use stockade_services::StackServer;

use crate::client::{Clients, sleep, unix_time};

/// One request each: a second one would find a page expired or not, as crowded as the machine is.
const WAVES: u32 = 4;
/// nginx counts whole seconds, so a lifetime of one may take two.
const PAUSE: Duration = Duration::from_millis(2200);

pub fn file_gzip(clients: &Clients, _: &StackServer) {
    waves(clients, "/static/style.css", ".column-199", &[true]);
}

pub fn file(clients: &Clients, _: &StackServer) {
    waves(clients, "/static/style.css", ".column-199", &[false]);
}

pub fn file_both(clients: &Clients, _: &StackServer) {
    waves(clients, "/static/style.css", ".column-199", &[true, false]);
}

pub fn article_gzip(clients: &Clients, _: &StackServer) {
    waves(clients, "/article", "<h1>article</h1>", &[true]);
}

pub fn article(clients: &Clients, _: &StackServer) {
    waves(clients, "/article", "<h1>article</h1>", &[false]);
}

fn waves(clients: &Clients, target: &str, text: &str, gzip: &[bool]) {
    for wave in 0..WAVES {
        if wave > 0 {
            sleep(PAUSE);
        }
        for &is_gzip in gzip {
            let request = clients.get(target);
            let request = if is_gzip { request.gzip() } else { request };
            if let Some(answer) = request.send() {
                clients.check_text(200, text, &answer);
            }
        }
    }
}

pub fn deleted(clients: &Clients, _: &StackServer) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of this century")]
    let moment = unix_time() as u64 + 5;
    let target = format!("/until/{moment}");
    for _ in 0..2 {
        if let Some(answer) = clients.get(&target).gzip().send() {
            clients.check_text(200, "still here", &answer);
        }
    }
    // Until it is deleted, and what was stored then has expired.
    sleep(Duration::from_secs_f64((moment as f64 + 2.2 - unix_time()).max(0.0)));
    for _ in 0..4 {
        if let Some(answer) = clients.get(&target).gzip().send() {
            clients.check(answer.status == 404, "404", &answer);
        }
    }
}
