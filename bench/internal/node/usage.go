package node

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks is the clock of /proc: hundredths of a second on every Linux.
const ticks = 100

// Usage is what processes have used. All is 0 where the system does not say (it does on Linux).
type Usage struct {
	CPU    time.Duration // user and system
	Memory int64         // bytes resident now
}

// Add adds what others used.
func (u Usage) Add(other Usage) Usage {
	return Usage{CPU: u.CPU + other.CPU, Memory: u.Memory + other.Memory}
}

// UsageOf returns what processes have used so far, together.
func UsageOf(pids ...int) (sum Usage) {
	for _, pid := range pids {
		sum = sum.Add(usage(strconv.Itoa(pid)))
	}
	return sum
}

// Self returns what this process has used so far.
func Self() Usage { return usage("self") }

func usage(process string) (u Usage) {
	stat, err := os.ReadFile("/proc/" + process + "/stat")
	if err != nil {
		return u
	}
	// The name, in parentheses, may hold spaces; user and system time are the 12th and 13th field behind it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) > 21 {
		u.CPU = jiffies(fields[11]) + jiffies(fields[12])
		u.Memory = int64(number(fields[21])) * int64(os.Getpagesize())
	}
	return u
}

// Machine returns how long all processors of this machine were busy so far, and how long they were there.
func Machine() (busy, all time.Duration) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, field := range strings.Fields(line) {
		// user nice system idle iowait irq softirq steal; what follows is in user already
		if i == 0 || i > 8 {
			continue
		}
		all += jiffies(field)
		if i != 4 && i != 5 {
			busy += jiffies(field)
		}
	}
	return busy, all
}

func jiffies(field string) time.Duration { return time.Duration(number(field)) * time.Second / ticks }

func number(field string) uint64 {
	n, err := strconv.ParseUint(field, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("/proc has %q where a number is", field))
	}
	return n
}

// CPU is the model of the processors; "" where the system does not say.
func CPU() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
