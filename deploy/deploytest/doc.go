// Package deploytest holds the files of deploy/ against the programs: settings, ports, health
// checks, tokens and metrics that the files name have to be there. It asks promtool and a
// Prometheus about the rules and queries of the files. It has nothing but tests. It does not test
// things that need a Docker daemon or a cluster; deploy/README.md names them.
package deploytest
