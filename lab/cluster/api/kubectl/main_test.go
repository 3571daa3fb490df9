// SPDX-License-Identifier: Apache-2.0

// Package kubectl has no code: it tests the API with a real kubectl, against a cluster in a lab.
//
// kubectl of two minor versions is built from the Go modules of its releases before the sandbox, which has no network,
// is entered. To test with another one, or where there is no network, name it in VIPLAB_KUBECTL.
package kubectl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/lab/sandbox"
)

// older is the second version of kubectl: two minor versions older than the default.
const older = "v1.34.4"

// program is the kubectl to test with, and olderProgram the second one: the same if VIPLAB_KUBECTL names it.
var program, olderProgram string

func TestMain(m *testing.M) {
	var errs [2]error
	program, errs[0] = release.Kubectl(context.Background(), release.Default, os.Stderr)
	olderProgram, errs[1] = release.Kubectl(context.Background(), older, os.Stderr)
	if err := errors.Join(errs[:]...); err != nil {
		fmt.Fprintf(os.Stderr, "no kubectl to test with: %v\n", err)
		os.Exit(2)
	}
	sandbox.Main(m)
}
