// Package deploytest checks the files of deploy/ against the programs: the programs must have the
// settings, ports, health checks, tokens and metrics that the files name. It asks promtool and a
// Prometheus about the rules and queries of the files. It has only tests. It does not test things
// that need a Docker daemon or a cluster; deploy/README.md names them.
package deploytest
