//! Examples in the help of commands that the client does not have. A test checks that the program accepts each line.

pub const DEV: &str = "Examples:
  norn dev
  norn dev --nodes 1 --no-repl          # until it is stopped; one line `ready` once it serves

See also: repl, start, status";

pub const START: &str = "Examples:
  norn start --data /var/lib/norn --certs /etc/norn --listen 10.0.0.1:7400
  norn start --config /etc/norn.toml --log-format json
  norn start --config /etc/norn.toml --print-config

See also: doctor, cert node, cluster init, cluster token, log verify";

pub const DOCTOR: &str = "Examples:
  norn doctor --config /etc/norn.toml
  norn doctor --data /var/lib/norn --certs /etc/norn --listen 10.0.0.1:7400 --json
  norn doctor --connect alpha.example.com:7400 --certs certs
  norn doctor --config /etc/norn.toml --connect 10.0.0.1:7400 --certs /etc/norn --bundle doctor.tar

See also: start, status, nodes, cluster status, log verify";

pub const HEALTH: &str = "Examples:
  norn health                           # is it ready?
  norn health --live --http 10.0.0.1:7500 --certs /etc/norn
  norn health --config /etc/norn.toml --ready --claims

See also: start, status, partitions";

pub const CERT_CA: &str = "Example:
  norn cert ca --dir certs

See also: cert node, cert client";

pub const CERT_NODE: &str = "Examples:
  norn cert node n1 --host 10.0.0.1 --dir certs
  norn cert node n1 --host 10.0.0.1,n1.example.org --dir certs --renew

See also: cert ca, cert client, start";

pub const CERT_CLIENT: &str = "Example:
  norn cert client worker-7 --dir certs

See also: cert ca, cert node";

pub const CLUSTER_INIT: &str = "Example:
  norn cluster init --peers 10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400 --certs certs --name mail

See also: start, cert client, cluster status, cluster add";

pub const LOG_INSPECT: &str = "Examples:
  norn log inspect /var/lib/norn --full
  norn log inspect /var/lib/norn --task 000038g2m4d7kq9rjscg0080000w3n5t --json

See also: log verify, log repair, get";

pub const LOG_VERIFY: &str = "Example:
  norn log verify /var/lib/norn

See also: log repair, log inspect, start";

pub const LOG_REPAIR: &str = "Examples:
  norn log repair /var/lib/norn --dry-run
  norn log repair /var/lib/norn

See also: log verify, log inspect, start";

pub const LOG_COMPACT: &str = "Examples:
  norn log compact /var/lib/norn
  norn log compact /var/lib/norn --json

See also: log verify, log inspect, start";

pub const REPL: &str = "Examples:
  norn repl
  norn repl --json < commands.txt       # one line of JSON for each command

See also: dev, help";

pub const COMPLETIONS: &str = "Examples:
  norn completions bash > ~/.local/share/bash-completion/completions/norn
  norn completions zsh > ~/.zfunc/_norn         # with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  norn completions fish > ~/.config/fish/completions/norn.fish

See also: man, help";

pub const MAN: &str = "Example:
  norn man ~/.local/share/man/man1

See also: completions, help";
