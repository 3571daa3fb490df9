// SPDX-License-Identifier: Apache-2.0

package exec_test

import (
	"fmt"

	"github.com/viplab/viplab/proxiers/exec"
	"github.com/viplab/viplab/suite/spec"
)

// New makes a proxier of a command line whose words are templates.
func ExampleNew() {
	words, err := exec.Split("/usr/local/bin/my-proxy --kubeconfig={{.Kubeconfig}} --node '{{.NodeName}}'")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := exec.New(exec.Command{Name: "my-proxy", Argv: words, Features: spec.Features(spec.ClusterIP)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Name(), len(words))
	// Output: my-proxy 4
}
