#!/usr/bin/env bash
# From traces to a trained proposer and verifier, and to what they would have saved:
#
#     train.sh TRACES MODEL OUT
#
# TRACES is a folder that `foretrace import` or `generate` made, MODEL a chat model (a folder or a name on the Hub), OUT a
# new folder. What stands in TRAIN_OPTIONS goes to TRL, in BUILD_OPTIONS, PREDICT_OPTIONS and REPLAY_OPTIONS to the commands
# of foretrace: a model that was trained on --max_length 4096 needs BUILD_OPTIONS="--max-context-tokens 3072".
set -euo pipefail
traces=$1 model=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
port=${PORT:-8137}
read -ra train <<< "${TRAIN_OPTIONS:-}"
read -ra build <<< "${BUILD_OPTIONS:-}"
read -ra predict <<< "${PREDICT_OPTIONS:-}"
read -ra replay <<< "${REPLAY_OPTIONS:-}"
mkdir -p "$out"

echo "== what a perfect predictor could save on these traces"
foretrace ceiling "$traces" "${replay[@]}"

echo "== the dataset, with what predictors reach that cost nothing"
foretrace build "$traces" --out "$out/dataset" --references "${build[@]}"

echo "== a proposer"
trl sft --config "$here/proposer.yaml" --model_name_or_path "$model" --dataset_name "$out/dataset" \
    --output_dir "$out/proposer" "${train[@]}"

echo "== the same, trained on to prefer what fits"
trl dpo --config "$here/preferences.yaml" --model_name_or_path "$out/proposer" --dataset_name "$out/dataset" \
    --output_dir "$out/preferring" "${train[@]}"

echo "== a verifier"
trl reward --config "$here/verifier.yaml" --model_name_or_path "$model" --dataset_name "$out/dataset" \
    --output_dir "$out/verifier" "${train[@]}"

echo "== the proposer's guesses, from a server (with a GPU: vllm serve $out/proposer --port $port)"
# It lists the models of this cache too, and fails where there is none.
mkdir -p "${HF_HUB_CACHE:-${HF_HOME:-$HOME/.cache/huggingface}/hub}"
transformers serve "$out/proposer" --port "$port" > "$out/server.log" 2>&1 &
trap 'kill %1' EXIT
until curl --silent --fail "http://localhost:$port/health" > "$out/health"; do
    kill -0 %1 || { cat "$out/server.log"; exit 1; }
    sleep 1
done
foretrace predict "$out/dataset" --model "openai:$out/proposer" --base-url "http://localhost:$port" --samples 3 \
    --out "$out/guesses.jsonl" "${predict[@]}"

echo "== the verifier's opinion of them"
python "$here/rate.py" "$out/verifier" "$out/dataset" "$out/guesses.jsonl" "$out/scores.jsonl"
foretrace verify "$out/guesses.jsonl" "$out/dataset" --scores "$out/scores.jsonl" --out "$out/predictions.jsonl"

echo "== how good both are, and what they would have saved"
foretrace score "$out/predictions.jsonl" "$out/dataset"
foretrace replay "$traces" --predictions "$out/predictions.jsonl" "${replay[@]}"
