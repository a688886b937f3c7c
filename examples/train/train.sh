#!/usr/bin/env bash
# From traces to a trained proposer and verifier, and to what they would have saved (docs/train.md goes through it):
#
#     train.sh TRACES MODEL OUT
#
# TRACES is a folder that `foretrace import` or `generate` made, MODEL a chat model (a folder or a name on the Hub), OUT a
# new folder. Further options of the commands go into variables: TRAIN_OPTIONS to all three of TRL's, SFT_OPTIONS,
# DPO_OPTIONS and REWARD_OPTIONS to one of them, BUILD_OPTIONS, PREDICT_OPTIONS and REPLAY_OPTIONS to those of foretrace.
# SERVE is what serves a model at PORT.
set -eo pipefail
[ $# -eq 3 ] || { echo "use: train.sh TRACES MODEL OUT" >&2; exit 2; }
traces=$1 model=$2 out=$3
here=$(dirname "$0")
port=${PORT:-8137}
read -ra serve <<< "${SERVE:-transformers serve}"
read -ra train <<< "$TRAIN_OPTIONS"
read -ra sft <<< "$SFT_OPTIONS"
read -ra dpo <<< "$DPO_OPTIONS"
read -ra reward <<< "$REWARD_OPTIONS"
read -ra build <<< "$BUILD_OPTIONS"
read -ra predict <<< "$PREDICT_OPTIONS"
read -ra replay <<< "$REPLAY_OPTIONS"

# What would fail after hours of training fails now.
for command in foretrace trl python curl "${serve[0]}"; do
    command -v "$command" > /dev/null || { echo "train.sh: $command is not there" >&2; exit 1; }
done
! curl --silent "http://localhost:$port" > /dev/null || { echo "train.sh: port $port is taken: set PORT" >&2; exit 1; }
mkdir -p "$out"
# `transformers serve` lists the models of this cache, and fails where there is none.
mkdir -p "${HF_HUB_CACHE:-${HF_HOME:-$HOME/.cache/huggingface}/hub}"

# guess NAME: serve the model OUT/NAME and write its guesses to OUT/NAME.jsonl.
guess() {
    "${serve[@]}" "$out/$1" --port "$port" > "$out/$1.log" 2>&1 &
    server=$!
    until curl --silent --fail "http://localhost:$port/health" > /dev/null; do
        kill -0 $server || { cat "$out/$1.log" >&2; exit 1; }
        sleep 1
    done
    foretrace predict "$out/dataset" --model "openai:$out/$1" --base-url "http://localhost:$port" --samples 3 \
        --out "$out/$1.jsonl" "${predict[@]}"
    kill $server
    wait $server || true
    server=
}
server=
# merge NAME: make a whole model of OUT/NAME, where it is an adapter (use_peft).
merge() {
    [ ! -f "$out/$1/adapter_config.json" ] || python "$here/merge.py" "$out/$1"
}
trap '[ -z "$server" ] || kill "$server"' EXIT

echo "== 1. what a perfect predictor could save on these traces"
foretrace ceiling "$traces" "${replay[@]}"

echo "== 2. the dataset, with what predictors reach that cost nothing"
foretrace build "$traces" --out "$out/dataset" --references "${build[@]}"
for split in train validation test; do
    compgen -G "$out/dataset/verifier/$split-*" > /dev/null || { echo "train.sh: no pairs in $split" >&2; exit 1; }
done

echo "== 3. a proposer"
trl sft --config "$here/proposer.yaml" --model_name_or_path "$model" --dataset_name "$out/dataset" \
    --output_dir "$out/proposer" "${train[@]}" "${sft[@]}"
merge proposer

echo "== 4. the same, trained on to prefer what fits"
trl dpo --config "$here/preferences.yaml" --model_name_or_path "$out/proposer" --dataset_name "$out/dataset" \
    --output_dir "$out/proposer-dpo" "${train[@]}" "${dpo[@]}"
merge proposer-dpo

echo "== 5. a verifier, and how often it prefers the right one of two actions"
trl reward --config "$here/verifier.yaml" --model_name_or_path "$model" --dataset_name "$out/dataset" \
    --output_dir "$out/verifier" "${train[@]}" "${reward[@]}"
merge verifier
python "$here/rate.py" "$out/verifier" "$out/dataset" --out "$out/pairs.jsonl"
foretrace score "$out/pairs.jsonl" "$out/dataset"

echo "== 6. the guesses of both proposers: is the second one better?"
guess proposer
guess proposer-dpo
foretrace score "$out/proposer-dpo.jsonl" "$out/dataset" --against "$out/proposer.jsonl"

echo "== 7. the verifier's opinion of the guesses of the first"
python "$here/rate.py" "$out/verifier" "$out/dataset" --predictions "$out/proposer.jsonl" --out "$out/scores.jsonl"
foretrace verify "$out/proposer.jsonl" "$out/dataset" --scores "$out/scores.jsonl" --out "$out/verified.jsonl"
foretrace score "$out/verified.jsonl" "$out/dataset"

echo "== 8. what they would have saved"
foretrace replay "$traces" --predictions "$out/verified.jsonl" "${replay[@]}"
