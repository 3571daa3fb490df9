// SPDX-License-Identifier: Apache-2.0

// Package replay writes a scenario down for a real cluster: what it begins with as plain manifests, and what it then
// does and expects as comments.
package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/suite/spec"
)

// Write writes the scenario as YAML that "kubectl apply -f -" takes. Nodes are the names of the real cluster's nodes
// that stand for n1, n2 and n3; those that are not given keep the lab's name.
func Write(w io.Writer, s spec.Scenario, nodes ...string) error {
	objects := engine.Scene(s)
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			p.Spec.NodeName = real(p.Spec.NodeName, nodes)
			p.Spec.Containers = containers(p.Spec.Containers)
		}
	}
	var b bytes.Buffer
	comment(&b, 0, "%s (%s)", s.ID, s.Priority)
	comment(&b, 0, "%s", s.Why)
	if err := manifest.Encode(&b, objects...); err != nil {
		return err
	}
	for i, step := range s.Steps {
		writeStep(&b, i+1, step)
	}
	_, err := b.WriteTo(w)
	return err
}

func writeStep(b *bytes.Buffer, number int, step spec.Step) {
	comment(b, 0, "")
	title := fmt.Sprintf("step %d", number)
	if step.Name != "" {
		title += ": " + step.Name
	}
	comment(b, 0, "%s", title)
	for _, a := range step.Do {
		comment(b, 1, "do: %s", a.Name)
	}
	for _, r := range step.Rows {
		comment(b, 1, "%s: %s", r.Probe(0), r.Wants())
	}
	if step.Check != nil {
		comment(b, 1, "and what a probe cannot tell is looked up: see the scenario's code")
	}
}

func comment(b *bytes.Buffer, indent int, format string, args ...any) {
	line := strings.Repeat("  ", indent) + fmt.Sprintf(format, args...)
	fmt.Fprintln(b, strings.TrimRight("# "+strings.ReplaceAll(line, "\n", "\n# "), " "))
}

// real is the name of the node that stands for one of the lab's.
func real(node string, nodes []string) string {
	if i := slices.Index(engine.NodeNames(), node); i >= 0 && i < len(nodes) {
		return nodes[i]
	}
	return node
}

// image has socat as its entry point, and a shell.
const image = "alpine/socat"

// containers serve the ports that a pod of the lab serves: each answers with the pod's name and the client's address
// and port, as it saw them. A pod without ports is a client to look around from.
func containers(lab []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range lab {
		for _, p := range c.Ports {
			proto := strings.ToUpper(string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
			out = append(out, corev1.Container{
				Name:  strings.ToLower(fmt.Sprintf("%s-%d", proto, p.ContainerPort)),
				Image: image,
				Args: []string{
					fmt.Sprintf("%s6-LISTEN:%d,ipv6only=0,reuseaddr,fork", proto, p.ContainerPort),
					"SYSTEM:echo $HOSTNAME saw $SOCAT_PEERADDR port $SOCAT_PEERPORT",
				},
				Ports: []corev1.ContainerPort{p},
			})
		}
	}
	if len(out) == 0 {
		out = append(out, corev1.Container{Name: "client", Image: image, Command: []string{"sleep", "infinity"}})
	}
	return out
}
