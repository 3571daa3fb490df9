// SPDX-License-Identifier: Apache-2.0

// Package clients has no code: it tests the API with the informers, listers and leader election of client-go.
//
// The program that uses them is built from the Go modules of a release of Kubernetes before the sandbox, which has no
// network, is entered. So client-go is no requirement of this module.
package clients

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"testing"

	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/lab/sandbox"
)

//go:embed testdata/informers.go
var source string

// program is the path of the program that uses client-go.
var program string

func TestMain(m *testing.M) {
	command := release.Command{Name: "informers", Version: release.Default, Source: source}
	path, err := command.Path()
	if err == nil {
		err = command.Build(context.Background(), os.Stderr) // outside of the sandbox; inside, it is there
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "no client-go to test with: %v\n", err)
		os.Exit(2)
	}
	program = path
	sandbox.Main(m)
}
