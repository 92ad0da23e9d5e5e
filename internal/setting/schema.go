package setting

// DurationSchema is the JSON Schema of a duration in Go's format, which a YAML file may also write
// as the number 0.
func DurationSchema() map[string]any {
	return map[string]any{
		"type": []string{"string", "integer"}, "minimum": 0, "maximum": 0,
		"pattern": `^\+?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`,
	}
}
