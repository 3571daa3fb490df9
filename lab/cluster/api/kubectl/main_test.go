// SPDX-License-Identifier: Apache-2.0

// Package kubectl has no code: it tests the API with a real kubectl, against a cluster in a lab.
//
// kubectl is built from the Go modules of its release before the sandbox, which has no network, is entered. To test
// with another one, or where there is no network, name it in VIPLAB_KUBECTL.
package kubectl

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/lab/sandbox"
)

// program is the kubectl to test with.
var program = os.Getenv("VIPLAB_KUBECTL")

func TestMain(m *testing.M) {
	if err := prepare(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "no kubectl to test with: %v\nVIPLAB_KUBECTL may name one that is there\n", err)
		os.Exit(2)
	}
	sandbox.Main(m)
}

func prepare(ctx context.Context) error {
	if program != "" {
		_, err := os.Stat(program)
		return err
	}
	command := release.Command{Name: "kubectl", Version: release.Default}
	var err error
	if program, err = command.Path(); err != nil {
		return err
	}
	return command.Build(ctx, os.Stderr) // outside of the sandbox; inside, it is there
}
