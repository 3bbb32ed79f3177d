//! Credentials, encryption, and the servers that agents may reach.

use std::{collections::BTreeMap, fs, sync::atomic::Ordering::Relaxed, time::Duration};

use stockade_agents::{
    AgentOptions, CancellationToken, ConnectionOptions, Coordinator, CoordinatorError, CoordinatorOptions,
    serve,
};
use stockade_load::generator::LoadTestError;
use stockade_services::NatsServer;

use super::fixture::{
    Agent, HANG, agent_options, agents, connection, constant, coordinator, hello, load, run,
};

#[test]
fn agents_reach_only_what_they_are_allowed_to() {
    let nats = NatsServer::start().unwrap();
    let (server, count) = hello();
    let allowed = vec!["192.0.2.0/24:80".parse().unwrap()].into();
    let _one = Agent::start(AgentOptions { allowed, ..agent_options(&nats, "elsewhere") });
    let _two = agents(&nats, 1, None);
    let error = run(&coordinator(&nats, 2).unwrap(), &load(server, constant("10/s", Duration::from_secs(1))))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "agent elsewhere: it may not reach http://{server}; allowed: 192.0.2.0/24:80; allow more with --allow-target when it starts"
        )
    );
    assert_eq!(count.load(Relaxed), 0, "the other agent sends nothing either");
    // Both are free again.
    assert_eq!(coordinator(&nats, 2).unwrap().agents().len(), 2);
}

#[test]
fn passwords_and_keys_open_the_server_and_are_not_shown() {
    let seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    let public = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.conf");
    fs::write(&keys, format!("authorization {{ users: [ {{ nkey: {public} }} ] }}\n")).unwrap();
    let with_password = NatsServer::with(&["--user", "ann", "--pass", "opensesame"]).unwrap();
    let with_key = NatsServer::with(&["--config", keys.to_str().unwrap()]).unwrap();
    for (nats, credentials, wrong) in [
        (&with_password, "ann:opensesame", "ann:close"),
        (&with_key, seed, "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4"),
    ] {
        let with = |text: &str| {
            let credentials = Some(text.parse().unwrap());
            ConnectionOptions { credentials, ..connection(nats) }
        };
        let _agent = Agent::start(AgentOptions { connection: with(credentials), ..agent_options(nats, "a") });
        let connect = |text: &str| {
            let options = CoordinatorOptions {
                connection: with(text),
                subject: "test".parse().unwrap(),
                agents: None,
                labels: Vec::new(),
                server_labels: BTreeMap::new(),
                agents_wait: HANG,
                moves_late_shares: false,
            };
            Coordinator::connect(&options, &CancellationToken::new(), |_| {})
        };
        let summary =
            run(&connect(credentials).unwrap(), &load(hello().0, constant("10/s", Duration::from_secs(1))));
        assert_eq!(summary.unwrap().summary.measured.successes, 10);
        let message = connect(wrong).unwrap_err().to_string();
        assert!(message.contains("refuses the credentials"), "{message}");
        assert!(!message.contains("close") && !message.contains("SUAI"), "{message}");
        let shown = format!("{:?}", with(credentials));
        assert!(!shown.contains("opensesame") && !shown.contains(seed), "{shown}");
        // An agent that is refused does not try for long.
        let refused = serve(
            AgentOptions { connection: with(wrong), ..agent_options(nats, "b") },
            |_| panic!("it is refused"),
            &CancellationToken::new(),
        );
        assert!(refused.unwrap_err().to_string().contains("refuses the credentials"));
    }
}

#[test]
fn missing_agents_and_servers_are_named() {
    let nats = NatsServer::start().unwrap();
    let _agent = Agent::start(AgentOptions { labels: vec!["eu".to_owned()], ..agent_options(&nats, "a") });
    let options = |label: &str| CoordinatorOptions {
        connection: connection(&nats),
        subject: "test".parse().unwrap(),
        agents: None,
        labels: vec![label.to_owned()],
        server_labels: BTreeMap::new(),
        agents_wait: Duration::from_secs(1),
        moves_late_shares: false,
    };
    let connect =
        |options: &CoordinatorOptions| Coordinator::connect(options, &CancellationToken::new(), |_| {});
    assert_eq!(connect(&options("eu")).unwrap().agents().len(), 1);
    let CoordinatorError::TooFew { found: 0, wanted: 1, .. } = connect(&options("us")).unwrap_err() else {
        panic!("it has another label")
    };
    let message = connect(&options("us")).unwrap_err().to_string();
    assert!(
        message.contains("; agent a has no label us; start more: stockade agent --nats nats://"),
        "{message}"
    );
    let absent = ConnectionOptions { url: "nats://127.0.0.1:1".parse().unwrap(), ..connection(&nats) };
    let message =
        connect(&CoordinatorOptions { connection: absent, ..options("eu") }).unwrap_err().to_string();
    assert!(message.starts_with("cannot reach NATS at nats://127.0.0.1:1: "), "{message}");
}

#[test]
fn busy_agents_are_not_used_twice() {
    let nats = NatsServer::start().unwrap();
    let _agents = agents(&nats, 1, None);
    let (one, two) = (coordinator(&nats, 1).unwrap(), coordinator(&nats, 1).unwrap());
    let load = load(hello().0, constant("10/s", Duration::from_secs(1)));
    let ready = stockade_load::generator::LoadRunner::prepare(&one, &load).unwrap();
    let Err(LoadTestError::Agents(refused)) = run(&two, &load) else { panic!("it is busy") };
    assert_eq!(refused.to_string(), "agent a0: it is busy with another load");
    drop(ready);
}
