package load

import (
	"strconv"
	"time"
)

// FreshName is the name of a topic or group that nobody uses.
func FreshName(kind string) string {
	return "bench." + kind + "." + strconv.FormatInt(time.Now().UnixNano(), 36)
}

// TopicNumber is the name of one of a load's topics.
func TopicNumber(topic string, number int) string { return topic + "." + strconv.Itoa(number) }
