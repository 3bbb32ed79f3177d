//! The causes of failures and their remedies, in words.

use std::{error::Error, io, iter};

use stockade_http::{
    client::ClientError,
    tls::{HandshakeFailure, TrustError},
};

use super::BODY_BYTES_MAX;

pub(super) fn explain(error: &ClientError, host: &str) -> String {
    match error {
        ClientError::Resolve(error) => format!("no address for host `{host}`: {error}; check its name"),
        ClientError::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            "connection refused: start the server, or check host and port".to_owned()
        }
        ClientError::Connect(error) => format!("cannot connect: {error}; check host and port"),
        ClientError::Tls(error) => HandshakeFailure::explain(error, "ca=FILE"),
        ClientError::TooLarge => format!("its answer has more than {} MiB", BODY_BYTES_MAX >> 20),
        ClientError::NoReply(hyper) | ClientError::Incomplete(hyper) => {
            let causes = || iter::successors(Some(hyper as &(dyn Error + 'static)), |&error| error.source());
            let io = causes().find_map(|cause| cause.downcast_ref::<io::Error>());
            if hyper.is_incomplete_message() || io.is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof)
            {
                return "it closed the connection before its answer was whole".to_owned();
            }
            if hyper.is_parse() {
                return "it does not answer in HTTP: check host, port and scheme".to_owned();
            }
            format!("the connection broke: {}", causes().last().unwrap_or(hyper))
        }
    }
}

pub(super) fn trust_error(error: &TrustError) -> String {
    match error {
        TrustError::NoSystemAuthority => format!("{error}, or name a file of certificates with ca="),
        TrustError::File { .. } => format!("`ca`: {error}"),
        TrustError::Key { .. } | TrustError::Protocol(_) => error.to_string(),
    }
}
