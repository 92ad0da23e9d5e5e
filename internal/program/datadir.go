package program

import (
	"os/user"
	"path/filepath"
)

// dataDir is where a program keeps its data unless told otherwise: sluice/<program> under
// $XDG_DATA_HOME, else under ~/.local/share. As the XDG specification asks, a relative
// $XDG_DATA_HOME is ignored. A service may run without $HOME; the user database then knows the
// home. If nothing does, the answer is "", and the program has to be told.
func dataDir(lookupEnv func(string) (string, bool), program string) string {
	if base, _ := lookupEnv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "sluice", program)
	}
	home, _ := lookupEnv("HOME")
	if home == "" {
		if current, err := user.Current(); err == nil {
			home = current.HomeDir
		}
	}
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".local", "share", "sluice", program)
}
