package mongotest

import (
	"sync"

	"github.com/sluice-bus/sluice/internal/testbuild"
)

// Both are built once in a process.
var model, ferretDB = sync.OnceValues(testbuild.MongoModel.Build), sync.OnceValues(testbuild.FerretDB.Build)
