package topics

import "fmt"

// tooMany says which bound is reached.
func tooMany(what string, there int, flag string, most int) string {
	return fmt.Sprintf("there are %d %s, and %s allows %d: delete some, or raise it", there, what, flag, most)
}
