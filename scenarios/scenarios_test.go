// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/viplab/viplab/suite/spec"
)

// Ids are unique and every scenario is well written. Whether they are what the catalogue asks for is tested beside it.
func TestScenariosAreWellWritten(t *testing.T) {
	if _, err := spec.Sort(All()); err != nil {
		t.Error(err)
	}
}

// A NodePort that a scenario chooses itself is its own: scenarios share clusters, in any order, and the port of one may
// not be what another finds closed. The actions that choose them are functions, so the source is read.
func TestChosenNodePortsAreNotShared(t *testing.T) {
	owner := map[int]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		for port := range nodePortsIn(t, path) {
			if other, taken := owner[port]; taken {
				t.Errorf("%s and %s both choose the NodePort %d", other, path, port)
			}
			owner[port] = path
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(owner) < 10 {
		t.Errorf("found %d chosen NodePorts: is the source still read?", len(owner))
	}
}

// nodePortsIn are the numbers in a file that lie in the range of NodePorts.
func nodePortsIn(t *testing.T, path string) map[int]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.INT {
			if v, err := strconv.Atoi(lit.Value); err == nil && v > 30000 && v < 32767 {
				found[v] = true
			}
		}
		return true
	})
	return found
}
