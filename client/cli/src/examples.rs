//! Examples in the help of each verb. A test checks that the verbs accept each line.

pub const ENQUEUE: &str = "Examples:
  norn enqueue mail hello --priority 5 --delay 10m
  norn enqueue mail 'all is packed' --after 000038g2m4d7kq9rjscg0080000w3n5t
  norn enqueue mail 'sent by noon' --after ID --must-exist    # refused if the other one is not known
  norn enqueue mail 'its twin' --near ID                      # lies where that does, for `transact`
  norn enqueue profiles anna --key anna --unique              # one at a time that is not finished; tells its id
  norn enqueue recon all --id recon/system-x                  # its name, until it has ended; `norn get recon/system-x`
  norn enqueue pages 'page one' --group book-7 --number 1 --join books
  norn enqueue pages 'page two' --group book-7 --number 2 --join books --total 2    # the last one says how many there are

See also: claim, get, wait, cancel, transact";

pub const CLAIM: &str = "Examples:
  norn claim mail
  norn claim mail,maps --lease 5m --wait 20s --max 9 --json
  norn claim mail --session ID                                # kept by the heartbeat of that session
  norn claim mail --depends ID,ID@VERSION                     # only as long as these are there, and the second unchanged

See also: renew, update, complete, fail, release, session open";

pub const RENEW: &str = "Example, with what `claim` printed:
  norn renew 000038g2m4d7kq9rjscg0080000w3n5t 7.42 --lease 1m

A lease grows as far as the policy of the queue allows, and is never shortened.

See also: claim, session renew";

pub const UPDATE: &str = "Example:
  norn update 000038g2m4d7kq9rjscg0080000w3n5t 7.42 0 'half of it is done'    # the next entry is number 1

An entry is stored at once, but not shown while one of a lower number is missing in its claim.

See also: claim, log, complete";

pub const COMPLETE: &str = "Examples:
  norn complete 000038g2m4d7kq9rjscg0080000w3n5t 7.42 --result sent
  norn complete 000038g2m4d7kq9rjscg0080000w3n5t 7.42 --then next.json

A file with a group of two, and the join that comes behind them:
  [{\"queue\": \"books\", \"data\": \"bind\", \"join\": {\"total\": 2, \"fail_fast\": false}},
   {\"queue\": \"pages\", \"data\": \"one\", \"number\": 1}, {\"queue\": \"pages\", \"data\": \"two\", \"number\": 2}]

See also: claim, fail, release, transact";

pub const FAIL: &str = "Examples:
  norn fail 000038g2m4d7kq9rjscg0080000w3n5t 7.42 --reason 'server is busy' --retry-in 30s
  norn fail 000038g2m4d7kq9rjscg0080000w3n5t 7.42 --reason 'no such address' --invalid    # dead, whatever attempts are left

The task waits as long as --retry-in or its queue says. After its last attempt, or with --invalid, it is dead. A claim that is over
is refused (superseded, ended); a repeat of the call that ended it is answered as the first.

See also: claim, complete, release, redrive";

pub const RELEASE: &str = "Examples:
  norn release 000038g2m4d7kq9rjscg0080000w3n5t 7.42
  norn release --queue mail --older 1h --dry-run

A claim that is given back was no attempt. One that is over is refused, as by `fail`.

See also: claim, fail";

pub const CANCEL: &str = "Examples:
  norn cancel 000038g2m4d7kq9rjscg0080000w3n5t --reason 'not needed any more'
  norn cancel --queue mail --key customer-7 --dry-run
  norn cancel --queue mail --key customer-7 --confirm 12

A task that was done or dead before stays so: the answer says that, and the exit code is 5.

See also: get, release, redrive, purge";

pub const TRANSACT: &str = "A task is found by its id, as it was seen with its `version` (from `get`), or under its holder's
`token`. Nothing is changed unless all are found so. Tasks that lie together (one queue and key, or enqueued with --near)
change faster than others.

Examples:
  norn transact '{\"adds\": [{\"queue\": \"outbox\", \"data\": \"hello\"}], \"deletes\": [{\"id\": \"ID\", \"token\": \"7.42\"}]}'
  norn transact --file change.json

A file that changes a task, ends another one, and needs a third one to be there:
  {\"changes\": [{\"id\": \"ID\", \"version\": \"VERSION\", \"data\": \"two\", \"priority\": 5, \"delay\": \"1m\"}],
   \"deletes\": [{\"id\": \"ID\", \"token\": \"7.42\", \"result\": \"sent\"}],
   \"depends\": [{\"id\": \"ID\"}]}

A holder that hands a task back, changed, names its token and {\"release\": true}.

See also: enqueue, complete, get";

pub const REDRIVE: &str = "Examples:
  norn redrive 000038g2m4d7kq9rjscg0080000w3n5t
  norn redrive --queue mail --reason timeout --dry-run      # how many died so in a queue
  norn redrive --queue mail --reason timeout --limit 100    # and these once more
  norn redrive --letters mail-dead                          # letters, back to where they came from

Of several ids each is tried: a failure names its id, and the exit code is that of the worst.

See also: list, get, purge, queue set, enqueue";

pub const PURGE: &str = "Examples:
  norn purge 000038g2m4d7kq9rjscg0080000w3n5t
  norn purge --queue mail --state done --state cancelled --older 1h --dry-run
  norn purge --queue mail --state done --state cancelled --older 1h --confirm 12

Payload, result and log go with the task. One that has not ended is refused: cancel it first. Of several ids each is tried: a
failure names its id, and the exit code is that of the worst.

See also: cancel, list, redrive, queue set";

pub const GET: &str = "Examples:
  norn get 000038g2m4d7kq9rjscg0080000w3n5t
  norn get 000038g2m4d7kq9rjscg0080000w3n5t --min-seq 3 --json
  norn get 000038g2m4d7kq9rjscg0080000w3n5t 000038g2m4d7kq9rjscg0080000w3n5v --json    # one that is not known is null

See also: log, why, wait, list";

pub const LOG: &str = "Example:
  norn log 000038g2m4d7kq9rjscg0080000w3n5t

See also: update, get";

pub const WAIT: &str = "Example:
  norn wait 000038g2m4d7kq9rjscg0080000w3n5t --timeout 5m

See also: get, watch, why";

pub const WATCH: &str = "Examples:
  norn watch mail
  norn watch --group 000038g2m4d7kq9rjscg0080000w3n5t
  norn watch mail --json --limit 10 --timeout 1m

An ending is told at least once. That a task is ready or claimed is told as its leader sees it.

See also: wait, members, status";

pub const WHY: &str = "Example:
  norn why 000038g2m4d7kq9rjscg0080000w3n5t

See also: get, wait, queue show";

pub const MEMBERS: &str = "Example, by the id that `enqueue --group` printed:
  norn members 000038g2m4d7kq9rjscg0080000w3n5t --limit 1000

See also: enqueue, get, watch";

pub const LIST: &str = "Examples:
  norn list mail --state dead --limit 20
  norn list mail --newest --newer 1h --header tenant=acme
  norn list --json

With --state waiting, the list says when each task is due, or what it waits for. 64+ claims: the latest 64 are kept, so there may have
been earlier ones.

See also: get, count, queues";

pub const COUNT: &str = "Examples:
  norn count mail
  norn count --state claimed

See also: list, queues";

pub const QUEUES: &str = "Example:
  norn queues --json

See also: count, list, queue show";

pub const QUEUE_SET: &str = "Examples:
  norn queue set mail lease 5m
  norn queue set mail attempts 5
  norn queue set mail backoff exponential 1s 10m jitter 20%
  norn queue set mail dead-letter mail-dead
  norn queue set payments mode holder
  norn queue set imports concurrency 10
  norn queue set tenants order fair
  norn queue set mail paused yes

See also: queue show, queues";

pub const QUEUE_SHOW: &str = "Example:
  norn queue show mail

See also: queue set, queues";

pub const SESSION_OPEN: &str = "Examples:
  norn session open --ttl 10s --worker build-7         # prints the session's id and token
  norn claim mail --session ID --max 20
  norn session renew ID TOKEN                          # at least every 10s: keeps all 20
  norn session end ID TOKEN                            # frees at once what is not completed
  norn list norn/sessions --state claimed              # those that are open

See also: session renew, session end, claim";

pub const SESSION_RENEW: &str = "Example, with what `session open` printed:
  norn session renew 000038g2m4d7kq9rjscg0080000w3n5t 7.42

See also: session open, session end";

pub const SESSION_END: &str = "Example, with what `session open` printed:
  norn session end 000038g2m4d7kq9rjscg0080000w3n5t 7.42

See also: session open, session renew, release";

pub const SCHEDULE_SET: &str = "Examples:
  norn schedule set backup jobs '{\"what\":\"all\"}' --cron '30 2 * * *' --zone Europe/Berlin
  norn schedule set heartbeat probes --cron '*/10 * * * * *' --catch-up skip
  norn schedule set launch mail 'we are open' --at 2030-01-31T09:00:00Z

See also: schedule list, schedule show, enqueue";

pub const SCHEDULE_LIST: &str = "Example:
  norn schedule list

See also: schedule show, schedule set";

pub const SCHEDULE_SHOW: &str = "Example:
  norn schedule show backup

See also: schedule list, schedule pause";

pub const SCHEDULE_REMOVE: &str = "Example:
  norn schedule remove launch

See also: schedule pause, schedule list";

pub const SCHEDULE_PAUSE: &str = "Example:
  norn schedule pause backup

See also: schedule resume, schedule remove";

pub const SCHEDULE_RESUME: &str = "Example:
  norn schedule resume backup

See also: schedule pause, schedule show";

pub const NODES: &str = "Example:
  norn nodes --json

See also: partitions, status, cluster status";

pub const RING: &str = "Example:
  norn ring

See also: partitions, nodes, cluster move";

pub const PARTITIONS: &str = "Example:
  norn partitions

See also: ring, nodes, status";

pub const STATUS: &str = "Examples:
  norn status --watch
  norn status --nodes    # what each node has counted, side by side

Without a majority, it says of how many partitions the tasks are uncounted.

See also: nodes, partitions, cluster status";

pub const HELP: &str = "Examples:
  norn help enqueue
  norn help session open

See also: status, queues";

pub const CLUSTER_ADD: &str = "Examples:
  norn cluster add delta.example.com:7400 --weight 2
  norn cluster add delta.example.com:7400 --zone rack7 --dry-run    # what would move

See also: cluster token, cluster replace, cluster drain";

pub const CLUSTER_TOKEN: &str = "Example:
  norn cluster token    # for `norn start --join` on the new machine

See also: cluster add";

pub const CLUSTER_DRAIN: &str = "Examples:
  norn cluster drain n4 --dry-run    # what would move
  norn cluster drain n4              # until it holds nothing; then `cluster remove`

See also: cluster undrain, cluster remove, cluster status";

pub const CLUSTER_UNDRAIN: &str = "Example:
  norn cluster undrain n4

See also: cluster drain";

pub const CLUSTER_REMOVE: &str = "Examples:
  norn cluster remove n4              # it was drained, or is dead
  norn cluster remove n4 --no-wait    # does not wait until others hold what it held

See also: cluster drain, cluster replace, cluster status";

pub const CLUSTER_REPLACE: &str = "Example:
  norn cluster replace n3 gamma2.example.com:7400

See also: cluster add, cluster remove";

pub const CLUSTER_MOVE: &str = "Example:
  norn cluster move 3 n2,n4,n5    # all that shall hold partition 3, the preferred leader first

See also: ring, cluster rebalance";

pub const CLUSTER_REBALANCE: &str = "Examples:
  norn cluster rebalance --dry-run
  norn cluster rebalance

See also: cluster status, cluster move";

pub const CLUSTER_RECOVER: &str = "Examples:
  norn cluster recover --lost n2,n3 --dry-run    # what would go on, and with what
  norn cluster recover --lost n2,n3 --unsafe

See also: cluster status, cluster remove";

pub const CLUSTER_STATUS: &str = "Examples:
  norn cluster status
  norn cluster status --json

See also: status, nodes, partitions";

pub const CLUSTER_SET_REPLICAS: &str = "Example:
  norn cluster set replicas 5

See also: cluster status";

pub const CLUSTER_SET_WEIGHT: &str = "Example:
  norn cluster set weight n2 3    # three times as much as a member of weight 1

See also: cluster status, cluster rebalance";

pub const CLUSTER_SET_ZONE: &str = "Example:
  norn cluster set zone n2 rack7

See also: cluster status, nodes";

pub const CLUSTER_SET_ADDRESS: &str = "Examples, after it was stopped here and started there, and before it is:
  norn cluster set address n2 beta2.example.com:7400
  norn cluster set address n2 beta2.example.com:7400 --untried

See also: cluster status, nodes";

pub const CLUSTER_SET_HEAL_AFTER: &str = "Examples:
  norn cluster set heal-after 1h
  norn cluster set heal-after never

See also: cluster status, cluster remove";

pub const CLUSTER_SET_MOVES: &str = "Example:
  norn cluster set moves 8

See also: cluster set moves-each, cluster status";

pub const CLUSTER_SET_MOVES_EACH: &str = "Example:
  norn cluster set moves-each 1

See also: cluster set moves, cluster status";
