// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/viplab/viplab/lab/sandbox"
)

// A command enters the sandbox when it knows that it needs one.
func ExampleEnter() {
	if err := sandbox.Enter(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Println("in a sandbox:", sandbox.Inside())
	// Output: in a sandbox: true
}

// All tests of a package run in a sandbox.
func ExampleMain() {
	TestMain := func(m *testing.M) { sandbox.Main(m) }
	_ = TestMain
}
