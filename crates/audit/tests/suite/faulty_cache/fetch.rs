//! Responses of the origin to loads and to other requests, and their way into the store.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header, response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};

use super::{
    cache::{Cache, ClientRequest, Load, Loaded, ReplyBody, full, message},
    fault::Fault,
    rules,
    store::{StoredPage, selection},
    upstream::{Failure, read},
};

/// A longer body passes through and is not stored.
const STORED_BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The time of a response, and since its request.
type Times = (SystemTime, Duration);

impl Cache {
    pub async fn fetch(
        &self,
        request: &ClientRequest,
        load: &Load,
        stale: Option<&Arc<StoredPage>>,
    ) -> Loaded {
        let has_validator = |page: &&Arc<StoredPage>| {
            [header::ETAG, header::LAST_MODIFIED].iter().any(|name| page.headers.contains_key(name))
        };
        let mut validated = stale.filter(has_validator);
        loop {
            let asked = self.now();
            let (mut head, body) = match self.send(self.load_request(request, validated)).await {
                Ok(response) => response.into_parts(),
                Err(failure) => return Loaded::Failed(failure),
            };
            let received = self.now();
            let times = (received, received.duration_since(asked).unwrap_or_default());
            if let Some(page) = stale {
                let is_gone = [StatusCode::NOT_FOUND, StatusCode::GONE].contains(&head.status);
                if head.status.is_server_error() && page.freshness.may_hide_errors(received)
                    || is_gone && self.has(Fault::StaleAfterGone)
                {
                    return Loaded::Stale(page.clone());
                }
            }
            let Some(page) = validated.filter(|_| head.status == StatusCode::NOT_MODIFIED) else {
                return self.take_over(request, load, head, body, times).await;
            };
            if rules::is_about(&head.headers, &page.headers) || self.has(Fault::RevalidatesWithAnotherTag) {
                head.headers = rules::updated_fields(&self.faults, &page.headers, &head.headers);
                head.status = page.status;
                return self.admit(request, load, head, page.body.clone(), times);
            }
            validated = None;
        }
    }

    /// A response with a body of its own: read whole if it may be stored, streamed if not.
    async fn take_over(
        &self,
        request: &ClientRequest,
        load: &Load,
        mut head: response::Parts,
        body: Incoming,
        times: Times,
    ) -> Loaded {
        let (may_store, _) =
            rules::classify(&self.faults, &request.headers, (head.status, &head.headers), times);
        let is_large = body.size_hint().lower() > STORED_BODY_BYTES_MAX;
        if is_large || !may_store && !self.has(Fault::CrossUserCoalescing) {
            self.replace(request, load, head.status, None);
            return Loaded::Streamed(Response::from_parts(head, body.boxed()));
        }
        let (body, end) = read(body).await;
        if let Err(failure) = end {
            if !self.has(Fault::StoresTruncated) {
                self.count_failure(failure);
                return Loaded::Failed(failure);
            }
            head.headers.remove(header::CONTENT_LENGTH);
        }
        self.admit(request, load, head, body, times)
    }

    /// Stores a whole response if it may be stored.
    fn admit(
        &self,
        request: &ClientRequest,
        load: &Load,
        mut head: response::Parts,
        body: Bytes,
        times: Times,
    ) -> Loaded {
        let (may_store, freshness) =
            rules::classify(&self.faults, &request.headers, (head.status, &head.headers), times);
        let date = HeaderValue::from_str(&httpdate::fmt_http_date(times.0)).expect("a date is ASCII");
        head.headers.entry(header::DATE).or_insert(date);
        let fields = rules::varying_fields(&head.headers, &self.faults);
        let selection = selection(&fields, &request.headers);
        let page = StoredPage { status: head.status, selection, headers: head.headers, body, freshness };
        let page = Arc::new(page);
        self.replace(request, load, page.status, may_store.then(|| page.clone()));
        Loaded::New { is_shared: may_store && page.freshness.is_fresh(self.now()), page }
    }

    /// Puts a response in the place of the stored variant. An error leaves it.
    fn replace(
        &self,
        request: &ClientRequest,
        load: &Load,
        status: StatusCode,
        page: Option<Arc<StoredPage>>,
    ) {
        let mut state = self.state();
        if load.is_purged.load(Ordering::Relaxed) {
            return;
        }
        match page {
            Some(page) => state.store.insert(&request.key, &request.headers, page),
            None if status.is_server_error() => {}
            None => state.store.remove_if(&request.key, |old| old.is_selected_by(&request.headers)),
        }
    }

    /// The request of a load: for the whole page, and with the tag of the stale one.
    fn load_request(&self, request: &ClientRequest, stale: Option<&Arc<StoredPage>>) -> Request<Full<Bytes>> {
        let mut headers = request.headers.clone();
        for name in [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_RANGE, header::RANGE] {
            headers.remove(name);
        }
        if let Some(mut stale) = stale.cloned() {
            if self.has(Fault::RevalidatesWithAnotherTag) {
                stale = self.state().store.first(&request.key).cloned().unwrap_or(stale);
            }
            for (validator, condition) in
                [(header::ETAG, header::IF_NONE_MATCH), (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE)]
            {
                if let Some(value) = stale.headers.get(validator) {
                    headers.insert(condition, value.clone());
                }
            }
        }
        origin_request(Method::GET, request.uri.clone(), headers, Bytes::new())
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        if self.has(Fault::NothingAfterReset) && Some(self.now()) < self.state().failing_until {
            return Err(Failure::Broken);
        }
        let answer = self.upstream.send(request, &self.faults).await;
        let mut response = answer.inspect_err(|failure| self.count_failure(*failure))?;
        if response.status().is_server_error() {
            self.count_error();
        }
        rules::remove_hop_by_hop(response.headers_mut());
        Ok(response)
    }

    fn count_failure(&self, failure: Failure) {
        if failure == Failure::Broken && self.has(Fault::NothingAfterReset) {
            self.state().failing_until = Some(self.now() + Duration::from_secs(5));
        }
        self.count_error();
    }

    fn count_error(&self) {
        let mut state = self.state();
        state.errors += 1;
        if state.errors.is_multiple_of(5) && self.has(Fault::BreakerForAll) {
            state.closed_until = Some(self.now() + Duration::from_secs(5));
        }
    }

    /// Sends a request to the origin as it is, and its response to the client.
    pub async fn pass(&self, request: &ClientRequest, body: Bytes) -> Response<ReplyBody> {
        let ClientRequest { method, uri, headers, key } = request;
        let answer = self.send(origin_request(method.clone(), uri.clone(), headers.clone(), body)).await;
        let (head, body) = match answer {
            Ok(response) => response.into_parts(),
            Err(failure) => return message(failure.status()),
        };
        if !method.is_safe() && (head.status.is_success() || head.status.is_redirection()) {
            self.purge(&mut self.state(), key, |_| true);
        }
        if self.has(Fault::StoresHeadAsPage) && method == Method::HEAD
            || self.has(Fault::StoresPartAsWhole) && head.status == StatusCode::PARTIAL_CONTENT
        {
            return self.store_as_page(request, head, body).await;
        }
        Response::from_parts(head, body.boxed())
    }

    /// Stores a response that is not the whole page, for faults.
    async fn store_as_page(
        &self,
        request: &ClientRequest,
        head: response::Parts,
        body: Incoming,
    ) -> Response<ReplyBody> {
        let (body, _) = read(body).await;
        let (mut as_page, ()) = Response::new(()).into_parts();
        as_page.headers = head.headers.clone();
        as_page.headers.remove(header::CONTENT_LENGTH);
        as_page.headers.remove(header::CONTENT_RANGE);
        let load = Load::new(&request.key, Vec::new(), false);
        self.admit(request, &load, as_page, body.clone(), (self.now(), Duration::ZERO));
        Response::from_parts(head, full(body))
    }
}

fn origin_request(method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
    request
}
