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

// program is the kubectl to test with.
var program = os.Getenv("VIPLAB_KUBECTL")

// olderProgram is the second kubectl, or nothing if VIPLAB_KUBECTL names the only one.
var olderProgram string

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
	var errs [2]error
	program, errs[0] = build(ctx, release.Default)
	olderProgram, errs[1] = build(ctx, older)
	return errors.Join(errs[:]...)
}

// build returns the path of kubectl of a version. It builds kubectl outside of the sandbox; inside, it is there.
func build(ctx context.Context, version string) (string, error) {
	command := release.Command{Name: "kubectl", Version: version}
	path, err := command.Path()
	if err != nil {
		return "", err
	}
	return path, command.Build(ctx, os.Stderr)
}
