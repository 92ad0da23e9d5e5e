package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// A change that names the version it was made of does not undo one that somebody else made in
// between.
func Example_controlPlane() {
	ctx := context.Background()
	standIn := sluicetest.StartControlPlane(sluicetest.ControlPlaneOptions{}) // in place of http://127.0.0.1:7080
	defer standIn.Close()

	plane := &admin.ControlPlane{URL: standIn.URL, User: "alice"}
	defer plane.CloseIdle()
	limit := func(rate int) []byte { return fmt.Appendf(nil, `{"publish":{"rate":%d}}`, rate) }
	first, err := plane.PutPolicy(ctx, "orders.*", limit(1000), admin.Condition{Absent: true})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := plane.PutPolicy(ctx, "orders.*", limit(500), admin.Condition{Version: first.Version}); err != nil {
		log.Fatal(err)
	}
	_, err = plane.PutPolicy(ctx, "orders.*", limit(700), admin.Condition{Version: first.Version})
	fmt.Println(errors.Is(err, &wire.Error{Code: wire.PreconditionFailed}))

	now, err := plane.Policy(ctx, "orders.*")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(now.Version, now.UpdatedBy)
	fmt.Println(string(now.Document))
	// Output:
	// true
	// 2 alice (not verified)
	// {"name":"orders.*","publish":{"rate":500},"updated_at":"2026-01-02T15:04:06Z","updated_by":"alice (not verified)","version":2}
}
