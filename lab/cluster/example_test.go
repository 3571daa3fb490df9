// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
)

// A pod of a manifest gets a namespace, an address and a server. The lab calls it by namespace and name.
func ExampleNew() {
	ctx := context.Background()
	c, err := cluster.New(ctx, lab.Topology{Nodes: []lab.NodeSpec{{Name: "n1"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	objects, err := manifest.Decode("web.yaml", []byte(`
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  nodeName: n1
  containers: [{name: web, image: echo, ports: [{containerPort: 8080}]}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Store().Apply(objects...); err != nil {
		fmt.Println(err)
		return
	}
	if err := c.WaitPods(ctx, "default"); err != nil {
		fmt.Println(err)
		return
	}
	pod, _ := store.Get[*corev1.Pod](c.Store(), "default", "web")
	fmt.Println(pod.Status.PodIP, c.Lab().Pod("default/web").Addr(lab.V4))
	// Output: 10.244.1.2 10.244.1.2
}
