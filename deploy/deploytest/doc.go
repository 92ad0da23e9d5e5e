// Package deploytest holds the files of deploy/ against the programs: settings, ports, health
// checks, tokens and metrics that they name have to be there, and what promtool and a Prometheus
// can say of their rules and queries is asked. It has nothing but tests. What only a Docker daemon
// or a cluster could show it does not know; deploy/README.md says what that is.
package deploytest
