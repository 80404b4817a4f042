"""Our own subset of Envoy's messages: .proto files here, generated code in `seawall.proto.gen`.

Field numbers and types are the protocol; names of packages and files are ours, so that no other copy of Envoy's protos
in the process can collide with them in protobuf's pool. Fields that nobody here reads are left out: protobuf skips
them. `from seawall.proto.gen import ext_proc_pb2`; after a change of a .proto file run `make proto`.
"""
