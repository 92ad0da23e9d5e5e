package eventlog

import "context"

type makerKey struct{}

// MadeBy attributes the topics and groups that an operation creates to an identity, by its name.
// "": to none.
func MadeBy(ctx context.Context, name string) context.Context {
	if name == "" {
		return ctx
	}
	return context.WithValue(ctx, makerKey{}, name)
}

// Maker is the name that MadeBy has set, or "".
func Maker(ctx context.Context) string {
	name, _ := ctx.Value(makerKey{}).(string)
	return name
}
