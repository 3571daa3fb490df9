// SPDX-License-Identifier: Apache-2.0

package labtest

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

// refused is why Main could not make a sandbox.
var refused error

// Main runs the tests of a package inside a sandbox (package sandbox) and does not return. Where the machine allows no
// sandbox, it runs them outside, so that tests that need no lab still run, and Require says why there is none. Call it
// from TestMain.
func Main(m interface{ Run() int }) {
	if !slices.Contains(os.Args, "-test.fuzzworker") { // the workers are in the sandbox of their parent
		refused = sandbox.Enter(context.Background())
	}
	os.Exit(m.Run())
}

const (
	noMain = "this user cannot make network namespaces here. Put the tests of the package into a sandbox:\n" +
		"\tfunc TestMain(m *testing.M) { labtest.Main(m) }\nor run them as root"
	noPrivilege = "root lacks CAP_SYS_ADMIN or CAP_NET_ADMIN here. In a container, give it more: docker run --privileged"
)

// Require ends the test unless it can build a lab. It fails the test and says what is missing and what to do. With
// "go test -short" it skips the test instead.
func Require(t testing.TB) {
	t.Helper()
	err := check()
	switch {
	case err == nil:
	case testing.Short():
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

func check() error {
	if refused != nil {
		return refused
	}
	ns, err := netns.New("check")
	switch {
	case err == nil:
		return ns.Close()
	case !errors.Is(err, unix.EPERM):
		return err
	case os.Geteuid() == 0:
		return errors.New(noPrivilege)
	default:
		return errors.New(noMain)
	}
}
