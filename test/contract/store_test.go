package contract

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// onBoth are the tests of promises that a store could break. They run on the embedded log, and
// again on a shared store as subtests of TestOnMongoDB. There, the sidecars that they start with
// shared, own or a home are on that store.
var onBoth = []func(*testing.T){
	// cloudevents_test.go
	TestCloudEventModes, TestCloudEventData, TestCloudEventsOut, TestCloudEventsWithoutData, TestCloudEventsOfTwoSources, TestDaprPublish,
	// daprapp_test.go
	TestDaprApplication,
	// daprgrpc_test.go
	TestDaprGRPCPublish, TestDaprStream, TestDeadLettersInAnotherTopic,
	// deadletter_test.go
	TestDeadLettersAtTheEdges, TestDeadLetterOfTheLongestName, TestDeadLettersAreKept, TestDeadLettersPassLimits,
	// delivery_test.go
	TestAckDeadline, TestModack, TestNack, TestDeadLetters, TestGivingBack, TestLateAck, TestMaxInflight, TestKeyOrder,
	// errors_test.go
	TestWebSocketErrors, TestHTTPErrors,
	// exactlyonce_test.go
	TestExactlyOnceAfterASeek, TestExactlyOnceWithAutoAck,
	// groups_test.go
	TestBlockedBy, TestDeliveryRate, TestMoreMembersThanPartitions, TestSeek,
	// http_test.go
	TestTraceOfABatch,
	// latest_test.go
	TestLatestAndLive,
	// later_test.go
	TestScheduledDelivery, TestCancelScheduled, TestBadSchedules, TestScheduledAreBounded, TestScheduledBytesAreBounded,
	TestScheduledOverAKill,
	// limits_test.go
	TestFieldLimits, TestTopicNames, TestBodyLimits, TestBatchLimitOverWebSocket,
	// ops_test.go
	TestMetrics, TestOps, TestLabelsGo,
	// names_test.go
	TestPartitionOfAKey, TestDeadLetterTopicIsATopic,
	// payload_test.go
	TestPayloadsAreHandedOutEqual, TestLoneSurrogates, TestPayloadsThatAreNotJSON, TestContentTypes, TestEventFields,
	// policies_test.go
	TestPolicyMatching, TestDeliveryMaxima, TestRetention, TestGroupPolicies, TestFairness,
	// publish_test.go
	TestPublishAnswers, TestConflict, TestPublishHeaders, TestLines, TestBatch, TestPipelining, TestOneIDFromManyPublishers,
	// pull_test.go
	TestPull, TestPullsShareAGroupWithSockets, TestPullOverRestarts, TestStream, TestStreamMissesNothing, TestStreamWithAGroup,
	// push_test.go
	TestPush,
	// rates_test.go
	TestTokens, TestTenants,
	// replay_test.go
	TestReplayPages, TestReplayFrom, TestReplayDefaultLimit, TestReplayBadInput, TestErasedIsReadNoMore, TestExport, TestExportEncodings,
	// schema_test.go
	TestSchemaVersion,
	// subscribe_test.go
	TestFrom, TestGroupsShareAndOthersDoNot, TestOKComesBeforeTheFirstEvent, TestFilter, TestMaxBatch, TestAutoAck, TestPause, TestRebalance,
	// ttl_test.go
	TestTTL,
	// understood_test.go
	TestEmptySelectors, TestWhatIsNotThereIsNamed,
}

// onEmbedded are the tests that do not depend on the store: the program's start, its listeners'
// guards, frames that reach no store, buckets and policy files.
var onEmbedded = []func(*testing.T){
	TestEachListenerNamesTheOthers, TestHelpAndVersion, TestReadyLine, TestPrecedence, TestRefusals, TestInsecure, TestOriginAndHost,
	TestFramesThatAreNotJSON, TestWhatClosesAWebSocket, TestTopicLabels, TestCloudEventRefusals, TestDaprApplicationElsewhere, TestDaprTokens,
	TestDaprApplicationIsShownAToken,
	TestCompressedBodies, TestEncodedHeaders, TestHTTP2, TestWhatIsNotKnownIsRefused, TestPaths, TestHTTP10,
	TestGroupNames, TestHeadersThatAreLeftOut,
	TestSchemaViolation, TestSchemaChanges, // before an event comes to the store
	TestRetryAfterIsEnough, TestDefaultRates, TestOnLimitWait, TestBytesPerSecond, TestReload, TestBucketsAreRetuned,
	TestSlowReader, // the outbox of a connection
	TestStopEndsStreamsAndPulls,
	TestExactlyOnceAfterARepublish, // a shared store knows every id for ten minutes at least
}

// TestOnMongoDB holds a sidecar on a shared store to the same contract.
func TestOnMongoDB(t *testing.T) {
	for _, test := range onBoth {
		t.Run(nameOf(test), test)
	}
}

// sharesStore tells whether the test runs on a shared store.
func sharesStore(t testing.TB) bool { return strings.HasPrefix(t.Name(), "TestOnMongoDB/") }

// fewer is the number for the embedded log, or the smaller one for a shared store, whose server
// reads a whole collection to find a part of it.
func fewer(t testing.TB, embedded, shared int) int {
	if sharesStore(t) {
		return shared
	}
	return embedded
}

func nameOf(test func(*testing.T)) string {
	name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
	return name[strings.LastIndexByte(name, '.')+1:]
}

// TestEveryTestHasItsStores fails if a test is in none of the lists above, unless it is in a file
// about shared stores.
func TestEveryTestHasItsStores(t *testing.T) {
	t.Parallel()
	var listed []string
	for _, test := range slices.Concat(onBoth, onEmbedded) {
		listed = append(listed, nameOf(test))
	}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		switch file {
		case "main_test.go", "store_test.go", "fleet_test.go", "outage_test.go", "incident_test.go":
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && !slices.Contains(listed, f.Name.Name) {
				t.Errorf("%s: list %s as onBoth or onEmbedded", file, f.Name.Name)
			}
		}
	}
}

// soon lets a sidecar that comes back after a kill, or another one, take over groups soon. A loaded
// machine can still renew a lease of this length.
var soon = []string{"--lease", "3s"}

// home is the things that outlive a sidecar: its data folder and its store.
type home struct{ dir, store string }

// newHome is a home on the test's store: the embedded log, or a database of its own on the shared
// server.
func newHome(t testing.TB) home {
	t.Helper()
	h := home{dir: t.TempDir(), store: "embedded:"}
	if sharesStore(t) {
		h.store = newStore(t)
	}
	return h
}

// newStore is the URL of an empty database of the shared server.
func newStore(t testing.TB) string {
	t.Helper()
	db := mongotest.Shared(t)
	return db.URI(db.NewDatabase(t))
}

// start starts a sidecar at home, with its policies ("" = none).
func (h home) start(t testing.TB, policies string, args ...string) *server {
	t.Helper()
	if policies != "" {
		args = append(args, "--policies", testkit.Write(t, filepath.Join(h.dir, "policies.yaml"), policies))
	}
	return &server{testkit.StartSidecar(t, filepath.Join(h.dir, "data"), append(args, "--store", h.store)...)}
}
