package eventlog

import "context"

type makerKey struct{}

// MadeBy has topics and groups that an operation makes be made for somebody: the
// name of an identity. "": nobody in particular.
func MadeBy(ctx context.Context, name string) context.Context {
	if name == "" {
		return ctx
	}
	return context.WithValue(ctx, makerKey{}, name)
}

// Maker is the name that MadeBy was told, or "".
func Maker(ctx context.Context) string {
	name, _ := ctx.Value(makerKey{}).(string)
	return name
}
