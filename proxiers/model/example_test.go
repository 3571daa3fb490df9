// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/model"
)

// A Builder turns snapshots of the cluster into the Services that a node has to serve. A Service that did not change
// keeps its pointer.
func ExampleBuilder() {
	cluster := store.New(store.Config{})
	err := cluster.Apply(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.80", Ports: []corev1.ServicePort{{Port: 80}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	builder := model.NewBuilder("n1", lab.V4)
	state := builder.Build(cluster.Snapshot())
	for _, s := range state.Services {
		for _, p := range s.Ports {
			fmt.Println(p.ID, p.ClusterIP, p.Number, len(p.Internal()))
		}
	}
	fmt.Println(builder.Build(cluster.Snapshot()) == state)
	// Output:
	// default/web 10.96.0.80 80 0
	// true
}
