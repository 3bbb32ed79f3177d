//! A web service with a cache in front of something slow.
//!
//! ```text
//! cargo run --release --package stockade-cache --example axum
//! curl -i http://127.0.0.1:3000/users/7
//! curl http://127.0.0.1:3000/metrics
//! ```
//!
//! The first request waits for the database, the next ones do not. When the database fails, what was
//! loaded before is served for six hours more, and the breaker keeps requests from it until it is back.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header::AGE},
    response::{IntoResponse, Response},
    routing::{delete, get},
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use stockade_cache::{Answer, Cache, Invalidation, Limit, Strategy, heap_bytes};

/// No such user: `None`. It is an answer, and cached for a second.
type User = Option<Arc<str>>;

#[derive(Clone)]
struct App {
    users: Cache<u64, User>,
    metrics: PrometheusHandle,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let strategy = Strategy {
        ttl: Some(Duration::from_secs(30)),
        jitter: 0.1,
        negative_ttl: Some(Duration::from_secs(1)),
        limit: Some(Limit::bytes(64 << 20)),
        ..Strategy::preset("breaker")?
    };
    let users =
        Cache::builder(strategy).not_found(User::is_none).weigh(heap_bytes).metrics("users").build()?;

    let app = Router::new()
        .route("/users/{id}", get(user))
        .route("/users/{id}", delete(forget))
        .route("/metrics", get(async |State(app): State<App>| app.metrics.render()))
        .with_state(App { users, metrics });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}/users/7", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn user(State(app): State<App>, Path(id): Path<u64>) -> Response {
    match app.users.get_with(id, move || fetch_user(id)).await {
        Ok(Answer { value, outcome, age, .. }) => {
            let head = [(AGE.as_str(), age.as_secs().to_string()), ("x-cache", outcome.name().to_owned())];
            match value {
                Some(user) => (head, user.to_string()).into_response(),
                None => (StatusCode::NOT_FOUND, head, "no such user\n").into_response(),
            }
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

/// Invalidates a user that has changed.
async fn forget(State(app): State<App>, Path(id): Path<u64>) -> StatusCode {
    app.users.invalidate(&id, Invalidation::Hard);
    StatusCode::NO_CONTENT
}

/// Your database.
async fn fetch_user(id: u64) -> Result<User, std::io::Error> {
    tokio::task::spawn_blocking(move || {
        // It is slow.
        let slow: u64 = (0..30_000_000_u64).fold(id, |sum, n| sum.wrapping_mul(31).wrapping_add(n));
        (id < 1_000).then(|| format!("user {id}, {slow:x}\n").into())
    })
    .await
    .map_err(std::io::Error::other)
}
