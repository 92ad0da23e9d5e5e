package health

import "fmt"

// plural is a number of things.
func plural[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// wait says that so many events wait.
func wait(n int64) string {
	if n == 1 {
		return "1 event waits"
	}
	return plural(n, "event") + " wait"
}

// size is a number of bytes in its largest unit.
func size(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB"}
	i := 0
	for ; n >= 1024 && i < len(units)-1; i++ {
		n /= 1024
	}
	return fmt.Sprintf("%.3g %s", n, units[i])
}
