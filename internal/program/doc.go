// Package program is what Sluice's programs have in common around their work: settings from flags,
// environment and file, --help and --version, the logger, signals, exit statuses and the ready
// line.
//
// A program passes its settings and the function that does the work. The package calls that
// function with a context that a signal ends.
//
// Each setting is a field of the program's settings struct, in the form that
// github.com/alecthomas/kong describes. It can be given in three ways, of which the first that is
// given wins:
//
//	--data-dir=/var/lib/sluice          the flag
//	SLUICE_DATA_DIR=/var/lib/sluice     the environment: SLUICE_ and the flag's name, capitals, dashes as underscores
//	data-dir: /var/lib/sluice           the file named with --config (or SLUICE_CONFIG): the flag's name
//
// An environment variable that is set but empty counts as not given, so that compose files and
// manifests can pass one through unconditionally.
package program
